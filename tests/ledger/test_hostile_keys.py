"""Any text is a key: it names its own task, and never anything else."""

from __future__ import annotations

from typing import Any

from docket.codec import decode_call, encode_call
from docket.ledger import Ledger
from docket.ledger.queries import Query, find_all
from docket.model.states import ExecutionState
from docket.storage.keys import bytes_text
from docket.storage.server import Server

from .desk import Desk, completed, new_ledger, order
from .hostile import hostile_keys

KEYS = hostile_keys()
DOCKETS = [
    "a",
    "a:b",
    "a*",
    "a:runs",
    "a:runs:=x",
    "{a}",
    "a:stream",
    "A",
    "a:slots:=x",
    "a%3A",
    "",
    ":",
    "\0",
    "\0001",
    "é\ud800",
]


def call_of(*values: str) -> bytes:
    return encode_call(tuple(v.encode("utf-8", "surrogatepass") for v in values), {})


def read_call(call: bytes) -> tuple[str, ...]:
    return tuple(value.decode("utf-8", "surrogatepass") for value in decode_call(call)[0])


async def test_every_key_gets_its_own_argument_result_and_record(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.ledger.enqueue([order(key, call_of(key)) for key in KEYS])
    runs = await desk.take(worker, 500)
    desk.sound_books()

    assert [run.key for run in runs] == KEYS
    for key in KEYS:
        look = await desk.ledger.get(key)
        assert look.task is not None
        assert read_call(look.task.call) == (key,)

    await desk.settle(*(completed(run) for run in runs))
    books = desk.sound_books()
    assert set(books.finished) == set(KEYS)
    for key in KEYS:
        look = await desk.ledger.get(key)
        assert look.finished is not None
        assert read_call(look.finished.task.call) == (key,)


async def test_every_key_can_be_cancelled_and_only_that_one(desk: Desk) -> None:
    await desk.add(*KEYS[::2])
    await desk.add(*KEYS[1::2], due_ms=desk.later())
    left = set(KEYS)
    for key in KEYS:
        assert await desk.ledger.cancel(key) == 1
        left.remove(key)
        if len(left) % 50 == 0:
            assert set(desk.sound_books().tasks) == left
    assert desk.books().leftovers == set()


async def test_every_key_can_be_cancelled_while_it_runs(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add(*KEYS)
    runs = await desk.take(worker, 500)
    for key in KEYS:
        assert await desk.ledger.cancel(key) == 2
    assert desk.renew(worker).orders == [(run.epoch, run.key) for run in runs]


async def test_a_blocking_read_delivers_every_key(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add(*KEYS)
    runs = await desk.claim(worker, desk.read(worker, 500))
    assert runs is not None
    assert [run.key for run in runs] == KEYS
    desk.sound_books()


async def test_a_delivery_whose_answer_was_lost_is_found_whatever_its_key(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add(*KEYS)
    known = await desk.take(worker, len(KEYS) - 50)
    desk.read(worker, 500)
    unknown = await desk.ledger.unknown_deliveries(worker, [run.epoch for run in known], [])
    runs = await desk.claim(worker, list(unknown))
    assert runs is not None
    assert {run.key for run in runs} == set(KEYS) - {run.key for run in known}


async def test_every_key_survives_the_loss_of_its_worker(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add(*KEYS)
    await desk.take(worker, 500)
    put_back = 0
    desk.end_lease(worker)
    while (answer := desk.reclaim())[4] or answer[1]:
        put_back += answer[1]
    assert put_back == len(KEYS)
    assert {run.key for run in await desk.take(await desk.hire(), 500)} == set(KEYS)


async def test_pages_show_every_key(desk: Desk) -> None:
    await desk.ledger.enqueue([order(key, call_of(key)) for key in KEYS])
    seen = {row.key: row async for page in find_all(desk.ledger, Query(), with_calls=True) for row in page}
    assert set(seen) == set(KEYS)
    assert all(read_call(row.task.call) == (key,) for key, row in seen.items())


async def test_function_names_may_be_odd_too(desk: Desk) -> None:
    worker = await desk.hire(*KEYS)
    other = await desk.hire("f")
    (row,) = [row for row in await desk.ledger.roster() if row.id == worker]
    assert row.tasks == set(KEYS)
    for name in KEYS[:100]:
        assert [row.id for row in await desk.ledger.roster(name)] == [worker]
    await desk.ledger.leave(worker)
    await desk.ledger.leave(other)
    assert desk.sound_books().leftovers == set()


async def test_any_text_names_a_limit(desk: Desk) -> None:
    worker = await desk.hire()
    for limit in KEYS[:120]:
        first, second = await desk.start(worker, "first"), await desk.start(worker, "second")
        assert await desk.acquire(first.key, first.epoch, [(limit, 1)]) == 1, limit
        assert await desk.acquire(second.key, second.epoch, [(limit, 1)]) == 2, limit
        desk.sound_books()
        await desk.settle(completed(first))
        (second,) = await desk.take(worker)
        assert await desk.acquire(second.key, second.epoch, [(limit, 1)]) == 1, limit
        await desk.settle(completed(second))
        assert not desk.sound_books().limits, limit
    await desk.ledger.leave(worker)
    assert desk.books().leftovers == set()


async def test_limits_whose_names_are_alike_are_different_limits(desk: Desk) -> None:
    worker = await desk.hire()
    limits = ["", "%", "%25", ":", "%3A", "\n", "%0A", "a", "a\nb", "b", "A"]
    await desk.add(*limits)
    for run in await desk.take(worker):
        assert await desk.acquire(run.key, run.epoch, [(run.key, 1)]) == 1
    assert len(desk.sound_books().slots) == len(limits)


async def test_one_run_may_hold_limits_of_any_names_at_once(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "x")
    limits = [(name, 1) for name in ("", "\n", "a\nb", "%", ":")]
    assert await desk.acquire(run.key, run.epoch, limits) == 1
    assert len(desk.sound_books().slots) == len(limits)
    await desk.settle(completed(run))
    assert not desk.sound_books().slots


async def test_dockets_with_names_alike_do_not_meet(server: Server, blocking: Any) -> None:
    desks = {name: Desk(new_ledger(server, name), blocking) for name in DOCKETS}
    keys = KEYS[:150]
    workers = {name: await desk.hire() for name, desk in desks.items()}
    for name, desk in desks.items():
        await desk.ledger.enqueue([order(key, call_of(name, key)) for key in keys])

    for name, desk in desks.items():
        runs = await desk.take(workers[name], 500)
        assert [run.key for run in runs] == keys
        # Every other task is finished before the next docket is even looked at.
        await desk.settle(*(completed(run) for run in runs[::2]))
        for run in runs[1::2]:
            assert await desk.ledger.cancel(run.key) == 2

    for name, desk in desks.items():
        for i, key in enumerate(keys):
            look = await desk.ledger.get(key)
            record = look.finished.task if look.finished else look.task
            assert record is not None
            assert read_call(record.call) == (name, key)
            assert (look.finished is not None) == (i % 2 == 0)
        assert (await desk.ledger.census()).unfinished == len(keys) // 2


async def test_clearing_one_docket_leaves_the_others_alone(server: Server, blocking: Any) -> None:
    desks = {name: Desk(new_ledger(server, name), blocking) for name in DOCKETS}
    for desk in desks.values():
        await desk.add("x", "y")
    for done, (name, desk) in enumerate(desks.items(), 1):
        assert await desk.ledger.clear() == 2, name
        others = list(desks.values())[done:]
        assert [await other.ledger.unfinished() for other in others] == [2] * len(others)


async def test_no_two_dockets_share_a_key_or_a_channel(server: Server) -> None:
    ledgers: list[Ledger] = [new_ledger(server, name) for name in DOCKETS]
    names = [bytes_text(name) for ledger in ledgers for name in ledger.keys.all if not name.endswith(b":=")]
    for family in ("runs", "slots", "line", "orders", "worker-tasks", "task-workers"):
        names += [ledger.keys.named(family, key) for ledger in ledgers for key in KEYS]
    assert len(names) == len(set(names))
    channels = [ledger.keys.task_channel(key) for ledger in ledgers for key in KEYS]
    assert len(channels) == len(set(channels))


async def test_a_task_may_be_called_like_its_state(desk: Desk) -> None:
    worker = await desk.hire()
    for state in ExecutionState:
        run = await desk.start(worker, state.value)
        await desk.settle(completed(run))
    assert set(desk.sound_books().finished) == {state.value for state in ExecutionState}
