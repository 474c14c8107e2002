"""A cancel reaches the task wherever it is, once, and for good."""

from __future__ import annotations

from docket.ledger import SettleResult, requeue
from docket.model.states import ExecutionState

from .ledger_client import LedgerClient, completed


async def state_of(ledger_client: LedgerClient, key: str) -> ExecutionState | None:
    finished = (await ledger_client.ledger.tasks.get(key)).finished
    return finished.state if finished else None


async def test_a_waiting_task_is_gone_at_once_wherever_it_waits(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    holder = await ledger_client.start(worker, "holder")
    await ledger_client.acquire("holder", holder.epoch, [("L", 1)])
    parked = await ledger_client.start(worker, "parked")
    await ledger_client.acquire("parked", parked.epoch, [("L", 1)])
    back = await ledger_client.start(worker, "front")
    await ledger_client.settle(requeue("front", back.epoch))
    await ledger_client.add("scheduled", due_ms=ledger_client.later())
    await ledger_client.add("delivered")
    await ledger_client.add("ready")
    entries = ledger_client.read(worker, 1)
    assert [e.key for e in entries] == [b"front", b"delivered"]

    for key in ("parked", "front", "scheduled", "ready", "delivered"):
        assert await ledger_client.ledger.tasks.cancel(key) == 1
        assert await state_of(ledger_client, key) is ExecutionState.CANCELLED
        assert await ledger_client.ledger.tasks.cancel(key) == 0
        ledger_client.checked_state()
    assert await ledger_client.claim(worker, entries) == []
    assert await ledger_client.take(worker) == []
    assert set(ledger_client.checked_state().tasks) == {"holder"}


async def test_a_running_task_gets_the_mark_and_its_worker_the_request(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    assert await ledger_client.ledger.tasks.cancel("k") == 2
    assert await ledger_client.ledger.tasks.cancel("k") == 2
    look = await ledger_client.ledger.tasks.get("k")
    assert look.run is not None
    assert look.run.cancel_asked
    assert ledger_client.renew(worker).cancel_requests == [(run.epoch, "k")]
    assert ledger_client.renew(other).cancel_requests == []
    ledger_client.checked_state()


async def test_a_cancel_request_is_shown_until_its_run_is_over(ledger_client: LedgerClient) -> None:
    """Neither a lost answer nor a worker that is too busy to read loses a cancel."""
    worker = await ledger_client.hire()
    await ledger_client.add("a", "b")
    a, b = await ledger_client.take(worker)
    await ledger_client.ledger.tasks.cancel("a")
    for _ in range(3):
        assert ledger_client.renew(worker).cancel_requests == [(a.epoch, "a")]
    await ledger_client.ledger.tasks.cancel("b")
    assert ledger_client.renew(worker).cancel_requests == [(a.epoch, "a"), (b.epoch, "b")]
    await ledger_client.settle(completed(a))
    assert ledger_client.renew(worker).cancel_requests == [(b.epoch, "b")]
    await ledger_client.settle(completed(b))
    assert ledger_client.renew(worker).cancel_requests == []
    assert not ledger_client.checked_state().cancel_requests


async def test_a_cancel_request_for_a_replaced_run_is_not_for_its_successor(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.start(worker, "k")
    await ledger_client.ledger.tasks.cancel("k")
    await ledger_client.add("k", replace=True)
    (run,) = await ledger_client.take(worker)
    assert ledger_client.renew(worker).cancel_requests == []
    assert await ledger_client.settle(completed(run)) == [SettleResult.DONE]
    assert await state_of(ledger_client, "k") is ExecutionState.COMPLETED


async def test_a_cancelled_run_whose_worker_died_is_not_run_again(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("cancelled", "neighbour")
    await ledger_client.take(worker)
    await ledger_client.ledger.tasks.cancel("cancelled")
    ledger_client.end_lease(worker)
    assert ledger_client.reclaim()[:4] == [1, 1, 0, 1]
    assert [run.key for run in await ledger_client.take(other)] == ["neighbour"]
    assert await state_of(ledger_client, "cancelled") is ExecutionState.CANCELLED
    ledger_client.checked_state()


async def test_a_cancel_between_the_death_and_its_discovery_is_honoured(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("k")
    await ledger_client.take(worker)
    await ledger_client.ledger.fleet.leave(worker)
    assert await ledger_client.ledger.tasks.cancel("k") == 2
    assert not ledger_client.checked_state().cancel_requests
    ledger_client.reclaim()
    assert await state_of(ledger_client, "k") is ExecutionState.CANCELLED
    assert not ledger_client.checked_state().tasks


async def test_a_cancelled_task_that_finds_its_limit_full_does_not_wait_in_line(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    holder, run = await ledger_client.start(worker, "holder"), await ledger_client.start(worker, "k")
    await ledger_client.acquire("holder", holder.epoch, [("L", 1)])
    await ledger_client.ledger.tasks.cancel("k")
    assert await ledger_client.acquire("k", run.epoch, [("L", 1)]) == 2
    assert await state_of(ledger_client, "k") is ExecutionState.CANCELLED
    stored_state = ledger_client.checked_state()
    assert not stored_state.lines
    assert not stored_state.parked


async def test_a_cancelled_run_that_a_lost_group_hid_is_not_run_again(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.start(worker, "k")
    await ledger_client.ledger.tasks.cancel("k")
    ledger_client.client.xgroup_destroy(ledger_client.ledger.keys.stream, "docket-workers")
    ledger_client.bury(worker)
    assert ledger_client.sweep() == 1
    assert await state_of(ledger_client, "k") is ExecutionState.CANCELLED
    assert not ledger_client.checked_state().tasks


async def test_clear_cancels_all_that_waits_and_leaves_what_runs(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "runs")
    for batch in range(4):
        await ledger_client.add(*(f"ready {batch} {n}" for n in range(400)))
        await ledger_client.add(*(f"later {batch} {n}" for n in range(100)), due_ms=ledger_client.later())
    assert await ledger_client.ledger.tasks.clear() == 2000
    stored_state = ledger_client.checked_state()
    assert set(stored_state.tasks) == {"runs"}
    assert len(stored_state.finished) == 2000
    assert not stored_state.schedule
    assert await ledger_client.settle(completed(run)) == [SettleResult.DONE]


async def test_clear_empties_lines_and_gives_reserved_slots_up(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(*(f"{n}" for n in range(5)))
    runs = await ledger_client.take(worker)
    for run in runs:
        await ledger_client.acquire(run.key, run.epoch, [("L", 1)])
    await ledger_client.settle(completed(runs[0]))
    stored_state = ledger_client.checked_state()
    assert (len(stored_state.lines[b"L"]), len(stored_state.slots[b"L"])) == (3, 1)
    assert await ledger_client.ledger.tasks.clear() == 4
    stored_state = ledger_client.checked_state()
    assert not stored_state.tasks
    assert not stored_state.limits
