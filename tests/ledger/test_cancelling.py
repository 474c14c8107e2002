"""A cancel reaches the task wherever it is, once, and for good."""

from __future__ import annotations

from docket.ledger import Answer, hand_back
from docket.model.states import ExecutionState

from .desk import Desk, completed


async def state_of(desk: Desk, key: str) -> ExecutionState | None:
    finished = (await desk.ledger.get(key)).finished
    return finished.state if finished else None


async def test_a_waiting_task_is_gone_at_once_wherever_it_waits(desk: Desk) -> None:
    worker = await desk.hire()
    holder = await desk.start(worker, "holder")
    await desk.acquire("holder", holder.epoch, [("L", 1)])
    parked = await desk.start(worker, "parked")
    await desk.acquire("parked", parked.epoch, [("L", 1)])
    back = await desk.start(worker, "front")
    await desk.settle(hand_back("front", back.epoch))
    await desk.add("scheduled", due_ms=desk.later())
    await desk.add("delivered")
    await desk.add("ready")
    entries = desk.read(worker, 1)
    assert [e.key for e in entries] == [b"front", b"delivered"]

    for key in ("parked", "front", "scheduled", "ready", "delivered"):
        assert await desk.ledger.cancel(key) == 1
        assert await state_of(desk, key) is ExecutionState.CANCELLED
        assert await desk.ledger.cancel(key) == 0
        desk.sound_books()
    assert await desk.claim(worker, entries) == []
    assert await desk.take(worker) == []
    assert set(desk.sound_books().tasks) == {"holder"}


async def test_a_running_task_gets_the_mark_and_its_worker_the_order(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    run = await desk.start(worker, "k")
    assert await desk.ledger.cancel("k") == 2
    assert await desk.ledger.cancel("k") == 2
    look = await desk.ledger.get("k")
    assert look.run is not None
    assert look.run.cancel_asked
    assert desk.renew(worker).orders == [(run.epoch, "k")]
    assert desk.renew(other).orders == []
    desk.sound_books()


async def test_an_order_is_shown_until_its_run_is_over(desk: Desk) -> None:
    """Neither a lost answer nor a worker that is too busy to read loses a cancel."""
    worker = await desk.hire()
    await desk.add("a", "b")
    a, b = await desk.take(worker)
    await desk.ledger.cancel("a")
    for _ in range(3):
        assert desk.renew(worker).orders == [(a.epoch, "a")]
    await desk.ledger.cancel("b")
    assert desk.renew(worker).orders == [(a.epoch, "a"), (b.epoch, "b")]
    await desk.settle(completed(a))
    assert desk.renew(worker).orders == [(b.epoch, "b")]
    await desk.settle(completed(b))
    assert desk.renew(worker).orders == []
    assert not desk.sound_books().orders


async def test_an_order_for_a_replaced_run_is_not_for_its_successor(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.start(worker, "k")
    await desk.ledger.cancel("k")
    await desk.add("k", replace=True)
    (run,) = await desk.take(worker)
    assert desk.renew(worker).orders == []
    assert await desk.settle(completed(run)) == [Answer.DONE]
    assert await state_of(desk, "k") is ExecutionState.COMPLETED


async def test_a_cancelled_run_whose_worker_died_is_not_run_again(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    await desk.add("cancelled", "neighbour")
    await desk.take(worker)
    await desk.ledger.cancel("cancelled")
    desk.end_lease(worker)
    assert desk.reclaim()[:4] == [1, 1, 0, 1]
    assert [run.key for run in await desk.take(other)] == ["neighbour"]
    assert await state_of(desk, "cancelled") is ExecutionState.CANCELLED
    desk.sound_books()


async def test_a_cancel_between_the_death_and_its_discovery_is_honoured(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("k")
    await desk.take(worker)
    await desk.ledger.leave(worker)
    assert await desk.ledger.cancel("k") == 2
    assert not desk.sound_books().orders
    desk.reclaim()
    assert await state_of(desk, "k") is ExecutionState.CANCELLED
    assert not desk.sound_books().tasks


async def test_a_cancelled_task_that_finds_its_limit_full_does_not_wait_in_line(desk: Desk) -> None:
    worker = await desk.hire()
    holder, run = await desk.start(worker, "holder"), await desk.start(worker, "k")
    await desk.acquire("holder", holder.epoch, [("L", 1)])
    await desk.ledger.cancel("k")
    assert await desk.acquire("k", run.epoch, [("L", 1)]) == 2
    assert await state_of(desk, "k") is ExecutionState.CANCELLED
    books = desk.sound_books()
    assert not books.lines
    assert not books.parked


async def test_a_cancelled_run_that_a_lost_group_hid_is_not_run_again(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.start(worker, "k")
    await desk.ledger.cancel("k")
    desk.client.xgroup_destroy(desk.ledger.keys.stream, "docket-workers")
    desk.bury(worker)
    assert desk.sweep() == 1
    assert await state_of(desk, "k") is ExecutionState.CANCELLED
    assert not desk.sound_books().tasks


async def test_clear_cancels_all_that_waits_and_leaves_what_runs(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "runs")
    for batch in range(4):
        await desk.add(*(f"ready {batch} {n}" for n in range(400)))
        await desk.add(*(f"later {batch} {n}" for n in range(100)), due_ms=desk.later())
    assert await desk.ledger.clear() == 2000
    books = desk.sound_books()
    assert set(books.tasks) == {"runs"}
    assert len(books.finished) == 2000
    assert not books.queue
    assert await desk.settle(completed(run)) == [Answer.DONE]


async def test_clear_empties_lines_and_gives_reserved_slots_up(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add(*(f"{n}" for n in range(5)))
    runs = await desk.take(worker)
    for run in runs:
        await desk.acquire(run.key, run.epoch, [("L", 1)])
    await desk.settle(completed(runs[0]))
    books = desk.sound_books()
    assert (len(books.lines[b"L"]), len(books.slots[b"L"])) == (3, 1)
    assert await desk.ledger.clear() == 4
    books = desk.sound_books()
    assert not books.tasks
    assert not books.limits
