"""`add` and `replace`: what is written down, once, and what the caller is told."""

from __future__ import annotations

from docket.codec import decode_call, encode_call
from docket.ledger import Answer, ProgressChange, Unwritten
from docket.model.states import ExecutionState

from .desk import Desk, completed, order

SCHEDULED, QUEUED = ExecutionState.SCHEDULED, ExecutionState.QUEUED


def call(number: int) -> bytes:
    return encode_call((number,), {})


def number_of(record_call: bytes) -> int:
    return decode_call(record_call)[0][0]


async def number_waiting(desk: Desk, key: str) -> int:
    look = await desk.ledger.get(key)
    assert look.task is not None
    return number_of(look.task.call)


async def test_a_new_task_is_scheduled_at_generation_one(desk: Desk) -> None:
    now, later = desk.now(), desk.later()
    (ready,) = await desk.add("ready")
    (waiting,) = await desk.add("waiting", due_ms=later)
    (overdue,) = await desk.add("overdue", due_ms=now - 5000)
    assert (ready.scheduled, ready.generation, ready.state) == (True, 1, QUEUED)
    assert (waiting.scheduled, waiting.generation, waiting.state) == (True, 1, SCHEDULED)
    assert (overdue.scheduled, overdue.state) == (True, QUEUED)
    assert ready.due_ms >= now
    assert waiting.due_ms == later
    assert overdue.due_ms == now - 5000
    desk.sound_books()


async def test_adding_a_known_key_changes_nothing_and_says_so(desk: Desk) -> None:
    worker, later = await desk.hire(), desk.later()
    await desk.add("ready", call=call(1))
    await desk.add("waiting", call=call(1), due_ms=later)
    before = desk.books()

    for key, state, options in (("ready", QUEUED, {"due_ms": later}), ("waiting", SCHEDULED, {})):
        (receipt,) = await desk.add(key, call=call(2), **options)
        assert (receipt.scheduled, receipt.generation, receipt.state) == (False, 1, state)
    assert desk.books() == before

    (run,) = await desk.take(worker)
    assert [r.scheduled for r in await desk.add("ready", call=call(2))] == [False]
    await desk.settle(completed(run))
    assert [r.scheduled for r in await desk.add("ready", call=call(3))] == [True]
    assert await number_waiting(desk, "ready") == 3
    assert "ready" not in desk.sound_books().finished


async def test_each_replacement_is_a_new_generation(desk: Desk) -> None:
    later = desk.later()
    (first,) = await desk.add("k", call=call(0))
    generations = [first.generation]
    for number, due in ((1, later), (2, 0), (3, later), (4, later + 1)):
        (receipt,) = await desk.add("k", call=call(number), due_ms=due, replace=True)
        assert receipt.scheduled
        assert receipt.state is (SCHEDULED if due else QUEUED)
        generations.append(receipt.generation)
        assert await number_waiting(desk, "k") == number
        desk.sound_books()
    assert generations == [1, 2, 3, 4, 5]
    assert desk.books().queue == {"k": later + 1}


async def test_replace_of_an_unknown_key_is_an_add(desk: Desk) -> None:
    (receipt,) = await desk.add("k", replace=True)
    assert (receipt.scheduled, receipt.generation) == (True, 1)


async def test_of_one_key_in_a_batch_the_first_add_wins(desk: Desk) -> None:
    receipts = await desk.ledger.enqueue([order("k", call(n)) for n in range(5)])
    assert [r.scheduled for r in receipts] == [True, False, False, False, False]
    assert {r.generation for r in receipts} == {1}
    assert await number_waiting(desk, "k") == 0
    assert len(desk.sound_books().entries) == 1


async def test_of_one_key_in_a_batch_the_last_replace_wins(desk: Desk) -> None:
    later = desk.later()
    receipts = await desk.ledger.enqueue(
        [order("k", call(n), replace=True, due_ms=later if n % 2 else 0) for n in range(6)]
    )
    assert [(r.scheduled, r.generation) for r in receipts] == [(True, n) for n in range(1, 7)]
    assert await number_waiting(desk, "k") == 5
    assert list(desk.sound_books().queue) == ["k"]


async def test_adds_and_replacements_of_a_key_in_one_batch_happen_in_order(desk: Desk) -> None:
    receipts = await desk.ledger.enqueue(
        [
            order("k", call(0), fresh=True),
            order("k", call(1)),
            order("k", call(2), replace=True),
            order("other", call(9)),
            order("k", call(3), fresh=True),
        ]
    )
    assert [(r.scheduled, r.generation) for r in receipts] == [(True, 1), (False, 1), (True, 2), (True, 1), (False, 2)]
    assert await number_waiting(desk, "k") == 2
    desk.sound_books()


async def test_a_whole_batch_is_delivered_in_its_order(desk: Desk) -> None:
    worker = await desk.hire()
    keys = [f"k{i}" for i in range(500)]
    await desk.add(*keys, fresh=True)
    assert [run.key for run in await desk.take(worker, 500)] == keys


async def test_an_empty_batch_is_no_error(desk: Desk) -> None:
    assert await desk.ledger.enqueue([]) == []
    assert await desk.settle() == []


async def test_a_replaced_task_that_was_delivered_but_not_claimed_starts_once_with_the_new_call(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    await desk.add("k", call=call(1))
    entries = desk.read(worker)
    await desk.add("k", call=call(2), replace=True)
    desk.sound_books()

    assert await desk.claim(worker, entries) == []
    (run,) = await desk.take(other)
    assert desk.books().tasks["k"].generation == 2
    assert await number_waiting(desk, "k") == 2
    assert await desk.settle(completed(run)) == [Answer.DONE]
    assert not desk.sound_books().entries


async def test_a_task_replaced_while_it_runs_voids_the_run(desk: Desk) -> None:
    worker = await desk.hire()
    old = await desk.start(worker, "k", call=call(1))
    await desk.ledger.progress([ProgressChange(old.key, old.epoch, add=1)])
    await desk.add("k", call=call(2), replace=True)
    books = desk.sound_books()
    assert not books.running
    assert not books.progress

    assert await desk.settle(completed(old)) == [Answer.LOST]
    assert await desk.ledger.progress([ProgressChange(old.key, old.epoch, add=1)]) == [Unwritten.LOST]
    assert await desk.acquire(old.key, old.epoch, [("L", 1)]) == 0
    (new,) = await desk.take(worker)
    assert new.epoch > old.epoch
    assert await number_waiting(desk, "k") == 2
    assert await desk.settle(completed(old)) == [Answer.LOST]
    assert await desk.settle(completed(new)) == [Answer.DONE]
    desk.sound_books()


async def test_a_task_replaced_while_it_runs_and_scheduled_for_later_waits_for_its_time(desk: Desk) -> None:
    worker = await desk.hire()
    old = await desk.start(worker, "k")
    await desk.add("k", replace=True, due_ms=desk.later())
    assert await desk.take(worker) == []
    assert await desk.settle(completed(old)) == [Answer.LOST]
    assert list(desk.sound_books().queue) == ["k"]


async def test_a_task_replaced_while_it_is_parked_leaves_the_line(desk: Desk) -> None:
    worker = await desk.hire()
    holder = await desk.start(worker, "holder")
    parked = await desk.start(worker, "parked", call=call(1))
    await desk.acquire(holder.key, holder.epoch, [("L", 1)])
    assert await desk.acquire(parked.key, parked.epoch, [("L", 1)]) == 2

    await desk.add("parked", call=call(2), replace=True)
    books = desk.sound_books()
    assert not books.lines
    assert not books.parked
    (again,) = await desk.take(worker)
    assert await number_waiting(desk, again.key) == 2


async def test_a_batch_that_wakes_a_task_and_then_replaces_it_leaves_one_of_it(desk: Desk) -> None:
    worker = await desk.hire()
    holder, woken = await desk.start(worker, "holder"), await desk.start(worker, "woken")
    parked = await desk.start(worker, "parked", call=call(1))
    await desk.acquire(holder.key, holder.epoch, [("L", 1)])
    for run in (woken, parked):
        assert await desk.acquire(run.key, run.epoch, [("L", 1)]) == 2
    await desk.settle(completed(holder))

    # The first gives its reserved slot up, which wakes the second.
    await desk.ledger.enqueue(
        [order("woken", replace=True), order("parked", call(2), replace=True), order("parked", call(3))]
    )
    books = desk.sound_books()
    assert [entry.key for entry in books.entries] == ["woken", "parked"]
    assert not books.slots
    assert await number_waiting(desk, "parked") == 2


async def test_unfinished_work_has_no_time_to_live_and_finished_work_always_has_one(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("waits", due_ms=desk.later())
    await desk.add("completed", "cancelled", "runs", "ready")
    await desk.ledger.cancel("cancelled")
    done, _ = await desk.take(worker, 2)
    await desk.settle(completed(done, ttl_ms=60_000))
    books = desk.sound_books()
    assert not books.expiring
    assert set(books.tasks) == {"waits", "runs", "ready"}
    assert 0 < books.finished_ttl["completed"] <= 60_000
    assert 60_000 < books.finished_ttl["cancelled"] <= desk.ledger.ttl_ms


async def test_a_docket_that_keeps_no_records_leaves_none(desk: Desk) -> None:
    desk.ledger.ttl_ms = 0
    worker = await desk.hire()
    run = await desk.start(worker, "done")
    await desk.settle(completed(run, ttl_ms=0))
    await desk.add("cancelled")
    await desk.ledger.cancel("cancelled")
    for _ in range(3):
        await desk.add("lost")
        worker = await desk.hire()
        await desk.take(worker)
        desk.bury(worker)
    books = desk.sound_books()
    assert not books.finished
    assert not books.tasks
    assert books.dead == {"lost"}
