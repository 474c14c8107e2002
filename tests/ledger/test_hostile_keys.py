"""Any text is a key: it names its own task, and never anything else."""

from __future__ import annotations

from typing import Any

from docket.inspection.snapshot import read_workers
from docket.ledger import Ledger
from docket.ledger.fleet import worker_name
from docket.model.states import ExecutionState
from docket.storage.keys import bytes_text
from docket.storage.server import Server
from tests.payloads import decode_call, encode_call

from .hostile import hostile_keys
from .ledger_client import LedgerClient, completed, new_ledger, new_task

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


async def test_every_key_gets_its_own_argument_result_and_record(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.ledger.tasks.enqueue([new_task(key, call_of(key)) for key in KEYS])
    runs = await ledger_client.take(worker, 500)
    ledger_client.checked_state()

    assert [run.key for run in runs] == KEYS
    for key in KEYS:
        look = await ledger_client.ledger.tasks.get(key)
        assert look.task is not None
        assert read_call(look.task.call) == (key,)

    await ledger_client.settle(*(completed(run) for run in runs))
    stored_state = ledger_client.checked_state()
    assert set(stored_state.finished) == set(KEYS)
    for key in KEYS:
        look = await ledger_client.ledger.tasks.get(key)
        assert look.finished is not None
        assert read_call(look.finished.task.call) == (key,)


async def test_every_key_can_be_cancelled_and_only_that_one(ledger_client: LedgerClient) -> None:
    await ledger_client.add(*KEYS[::2])
    await ledger_client.add(*KEYS[1::2], due_ms=ledger_client.later())
    left = set(KEYS)
    for key in KEYS:
        assert await ledger_client.ledger.tasks.cancel(key) == 1
        left.remove(key)
        if len(left) % 50 == 0:
            assert set(ledger_client.checked_state().tasks) == left
    assert ledger_client.stored_state().leftovers == set()


async def test_every_key_can_be_cancelled_while_it_runs(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(*KEYS)
    runs = await ledger_client.take(worker, 500)
    for key in KEYS:
        assert await ledger_client.ledger.tasks.cancel(key) == 2
    assert ledger_client.renew(worker).cancel_requests == [(run.epoch, run.key) for run in runs]


async def test_a_blocking_read_delivers_every_key(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(*KEYS)
    runs = await ledger_client.claim(worker, ledger_client.read(worker, 500))
    assert runs is not None
    assert [run.key for run in runs] == KEYS
    ledger_client.checked_state()


async def test_a_delivery_whose_answer_was_lost_is_found_whatever_its_key(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(*KEYS)
    known = await ledger_client.take(worker, len(KEYS) - 50)
    ledger_client.read(worker, 500)
    unknown = await ledger_client.ledger.deliveries.unknown_deliveries(worker, [run.epoch for run in known], [])
    runs = await ledger_client.claim(worker, list(unknown))
    assert runs is not None
    assert {run.key for run in runs} == set(KEYS) - {run.key for run in known}


async def test_every_key_survives_the_loss_of_its_worker(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(*KEYS)
    await ledger_client.take(worker, 500)
    put_back = 0
    ledger_client.end_lease(worker)
    while (answer := ledger_client.reclaim())[4] or answer[1]:
        put_back += answer[1]
    assert put_back == len(KEYS)
    assert {run.key for run in await ledger_client.take(await ledger_client.hire(), 500)} == set(KEYS)


async def test_pages_show_every_key(ledger_client: LedgerClient) -> None:
    await ledger_client.ledger.tasks.enqueue([new_task(key, call_of(key)) for key in KEYS])
    seen = {row.key: row async for page in ledger_client.ledger.queries.all(with_calls=True) for row in page}
    assert set(seen) == set(KEYS)
    assert all(read_call(row.task.call) == (key,) for key, row in seen.items())


async def test_function_names_may_be_odd_too(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire(*KEYS)
    other = await ledger_client.hire("f")
    workers = await read_workers(ledger_client.ledger)
    (row,) = [row for row in await ledger_client.ledger.fleet.workers() if row.id == worker]
    assert set(row.functions) == set(KEYS)
    (info,) = [info for info in workers if info.name == worker_name(worker)]
    assert info.tasks >= set(KEYS)
    for name in KEYS[:100]:
        assert [info.name for info in await read_workers(ledger_client.ledger, name)] == [worker_name(worker)]
    await ledger_client.ledger.fleet.leave(worker)
    await ledger_client.ledger.fleet.leave(other)
    assert ledger_client.checked_state().leftovers == set()


async def test_any_text_names_a_limit(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    for limit in KEYS[:120]:
        first, second = await ledger_client.start(worker, "first"), await ledger_client.start(worker, "second")
        assert await ledger_client.acquire(first.key, first.epoch, [(limit, 1)]) == 1, limit
        assert await ledger_client.acquire(second.key, second.epoch, [(limit, 1)]) == 2, limit
        ledger_client.checked_state()
        await ledger_client.settle(completed(first))
        (second,) = await ledger_client.take(worker)
        assert await ledger_client.acquire(second.key, second.epoch, [(limit, 1)]) == 1, limit
        await ledger_client.settle(completed(second))
        assert not ledger_client.checked_state().limits, limit
    await ledger_client.ledger.fleet.leave(worker)
    assert ledger_client.stored_state().leftovers == set()


async def test_limits_whose_names_are_alike_are_different_limits(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    limits = ["", "%", "%25", ":", "%3A", "\n", "%0A", "a", "a\nb", "b", "A"]
    await ledger_client.add(*limits)
    for run in await ledger_client.take(worker):
        assert await ledger_client.acquire(run.key, run.epoch, [(run.key, 1)]) == 1
    assert len(ledger_client.checked_state().slots) == len(limits)


async def test_one_run_may_hold_limits_of_any_names_at_once(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "x")
    limits = [(name, 1) for name in ("", "\n", "a\nb", "%", ":")]
    assert await ledger_client.acquire(run.key, run.epoch, limits) == 1
    assert len(ledger_client.checked_state().slots) == len(limits)
    await ledger_client.settle(completed(run))
    assert not ledger_client.checked_state().slots


async def test_dockets_with_names_alike_do_not_meet(server: Server, blocking: Any) -> None:
    desks = {name: LedgerClient(new_ledger(server, name), blocking) for name in DOCKETS}
    keys = KEYS[:150]
    workers = {name: await ledger_client.hire() for name, ledger_client in desks.items()}
    for name, ledger_client in desks.items():
        await ledger_client.ledger.tasks.enqueue([new_task(key, call_of(name, key)) for key in keys])

    for name, ledger_client in desks.items():
        runs = await ledger_client.take(workers[name], 500)
        assert [run.key for run in runs] == keys
        # Every other task is finished before the next docket is even looked at.
        await ledger_client.settle(*(completed(run) for run in runs[::2]))
        for run in runs[1::2]:
            assert await ledger_client.ledger.tasks.cancel(run.key) == 2

    for name, ledger_client in desks.items():
        for i, key in enumerate(keys):
            look = await ledger_client.ledger.tasks.get(key)
            record = look.finished.task if look.finished else look.task
            assert record is not None
            assert read_call(record.call) == (name, key)
            assert (look.finished is not None) == (i % 2 == 0)
        assert (await ledger_client.ledger.queries.census()).unfinished == len(keys) // 2


async def test_clearing_one_docket_leaves_the_others_alone(server: Server, blocking: Any) -> None:
    desks = {name: LedgerClient(new_ledger(server, name), blocking) for name in DOCKETS}
    for ledger_client in desks.values():
        await ledger_client.add("x", "y")
    for done, (name, ledger_client) in enumerate(desks.items(), 1):
        assert await ledger_client.ledger.tasks.clear() == 2, name
        others = list(desks.values())[done:]
        assert [await other.ledger.queries.unfinished() for other in others] == [2] * len(others)


async def test_no_two_dockets_share_a_key_or_a_channel(server: Server) -> None:
    ledgers: list[Ledger] = [new_ledger(server, name) for name in DOCKETS]
    names = [bytes_text(name) for ledger in ledgers for name in ledger.keys.all if not name.endswith(b":=")]
    for family in ("runs", "slots", "waiters", "cancel-requests", "worker-tasks", "task-workers"):
        names += [ledger.keys.named(family, key) for ledger in ledgers for key in KEYS]
    assert len(names) == len(set(names))
    channels = [ledger.keys.task_channel(key) for ledger in ledgers for key in KEYS]
    assert len(channels) == len(set(channels))


async def test_a_task_may_be_called_like_its_state(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    for state in ExecutionState:
        run = await ledger_client.start(worker, state.value)
        await ledger_client.settle(completed(run))
    assert set(ledger_client.checked_state().finished) == {state.value for state in ExecutionState}
