"""Only the write that ends a run gives back what the
run took from its limits and did not use."""

from __future__ import annotations

import pytest

from docket.ledger import Delivery, SettleResult, Taken, as_blocked, requeue, reschedule
from docket.ledger.limits import Decision, Verdict
from docket.model.states import ExecutionState
from docket.storage.records import read_task

from .ledger_client import LedgerClient, completed, ended, new_ledger

ACQUIRED, PARKED = 1, 2
WINDOW_MS = 3_600_000


async def cool(ledger_client: LedgerClient, run: Delivery, taken: list[Taken] | None = None) -> Decision:
    return await ledger_client.ledger.limits.cool_down(run.key, run.epoch, "C", WINDOW_MS, taken=taken or [])


async def pace(
    ledger_client: LedgerClient, run: Delivery, taken: list[Taken] | None = None, *, drop: bool = False
) -> Decision:
    return await ledger_client.ledger.limits.rate(run.key, run.epoch, "R", 1, WINDOW_MS, drop=drop, taken=taken or [])


async def settle_down(
    ledger_client: LedgerClient, run: Delivery, *, latest: bool = False, settle_ms: int = WINDOW_MS
) -> Decision:
    return await ledger_client.ledger.limits.debounce(run.key, run.epoch, "D", settle_ms, latest=latest)


def took(*decisions: Decision) -> list[Taken]:
    assert all(decision.verdict is Verdict.ADMIT for decision in decisions)
    return [decision.taken for decision in decisions if decision.taken is not None]


async def woken(ledger_client: LedgerClient, worker: str, holder: Delivery) -> Delivery:
    await ledger_client.settle(completed(holder))
    (run,) = await ledger_client.take(worker)
    return run


async def test_a_run_that_is_parked_gives_back_its_window_and_its_place(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    holder = await ledger_client.start(worker, "holder")
    assert await ledger_client.acquire("holder", holder.epoch, [("L", 1)]) == ACQUIRED
    run = await ledger_client.start(worker, "k")
    taken = took(await cool(ledger_client, run), await pace(ledger_client, run))
    assert await ledger_client.acquire("k", run.epoch, [("L", 1)], taken=taken) == PARKED

    other = await ledger_client.start(worker, "other")
    assert (await cool(ledger_client, other)).verdict is Verdict.ADMIT
    assert (await pace(ledger_client, other)).verdict is Verdict.ADMIT


async def test_a_worker_that_was_held_up_does_not_give_back_the_window_of_the_next_run(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    holder = await ledger_client.start(worker, "holder")
    assert await ledger_client.acquire("holder", holder.epoch, [("L", 1)]) == ACQUIRED
    held_up = await ledger_client.start(worker, "k")
    taken = took(await cool(ledger_client, held_up))
    assert await ledger_client.acquire("k", held_up.epoch, [("L", 1)], taken=taken) == PARKED
    run = await woken(ledger_client, worker, holder)
    took(await cool(ledger_client, run))

    blocked = as_blocked(ended(held_up, ExecutionState.CANCELLED), taken)
    assert await ledger_client.settle(blocked) == [SettleResult.LOST]

    other = await ledger_client.start(worker, "other")
    assert (await cool(ledger_client, other)).verdict is Verdict.DROP


async def test_a_run_that_a_rate_delays_gives_back_its_window(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    first = await ledger_client.start(worker, "first")
    took(await pace(ledger_client, first))
    run = await ledger_client.start(worker, "k")
    taken = took(await cool(ledger_client, run))
    assert (await pace(ledger_client, run, taken)).verdict is Verdict.DELAY

    other = await ledger_client.start(worker, "other")
    assert (await cool(ledger_client, other)).verdict is Verdict.ADMIT


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_run_that_settles_as_blocked_gives_back_what_it_took(
    ledger_client: LedgerClient, comes_back: bool
) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    taken = took(await cool(ledger_client, run), await pace(ledger_client, run))
    later = reschedule("k", run.epoch, attempt=1, delay_ms=WINDOW_MS, is_delayed=True)
    settlement = later if comes_back else ended(run, ExecutionState.CANCELLED)
    assert await ledger_client.settle(as_blocked(settlement, taken)) == [SettleResult.DONE]

    other = await ledger_client.start(worker, "other")
    assert (await cool(ledger_client, other)).verdict is Verdict.ADMIT
    assert (await pace(ledger_client, other)).verdict is Verdict.ADMIT
    ledger_client.checked_state()


async def test_a_run_that_was_replaced_gives_back_what_its_replacement_needs(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    taken = took(await cool(ledger_client, run))
    await ledger_client.add("k", replace=True)
    assert await ledger_client.acquire("k", run.epoch, [("L", 1)], taken=taken) == 0
    later = reschedule("k", run.epoch, attempt=1, is_delayed=True)
    assert await ledger_client.settle(as_blocked(later, taken)) == [SettleResult.LOST]

    (replacement,) = await ledger_client.take(worker)
    assert (await cool(ledger_client, replacement)).verdict is Verdict.ADMIT


async def test_a_window_serves_the_redelivery_of_the_run_that_opened_it_however_often_it_is_lost(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    took(await cool(ledger_client, run), await pace(ledger_client, run))
    for _ in range(2):
        ledger_client.bury(worker)
        worker = await ledger_client.hire()
        (run,) = await ledger_client.take(worker)
        assert (await cool(ledger_client, run)).verdict is Verdict.ADMIT
    # As a suspect that has to wait for its worker: its due time is another.
    await ledger_client.settle(requeue("k", run.epoch, delay_ms=50))
    ledger_client.fall_due("k")
    await ledger_client.ledger.tasks.stage()
    (run,) = await ledger_client.take(worker)
    assert (await cool(ledger_client, run)).verdict is Verdict.ADMIT
    assert (await pace(ledger_client, run)).verdict is Verdict.ADMIT


async def test_the_next_run_of_a_chain_is_another_submission_and_a_delayed_one_is_the_same(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    first = read_task(run.record).submission
    await ledger_client.settle(reschedule("k", run.epoch, attempt=1, is_delayed=True))
    (run,) = await ledger_client.take(worker)
    assert read_task(run.record).submission == first
    took(await cool(ledger_client, run))
    await ledger_client.settle(reschedule("k", run.epoch, attempt=1))
    (run,) = await ledger_client.take(worker)
    assert read_task(run.record).submission == first + 1
    assert (await cool(ledger_client, run)).verdict is Verdict.DROP


async def test_a_key_that_is_added_again_after_its_record_is_gone_is_another_submission(
    ledger_client: LedgerClient,
) -> None:
    forgetful = LedgerClient(new_ledger(ledger_client.ledger.server, ttl_ms=0), ledger_client.client)
    worker = await forgetful.hire()
    run = await forgetful.start(worker, "k")
    took(await cool(forgetful, run))
    await forgetful.settle(completed(run, ttl_ms=0))

    again = await forgetful.start(worker, "k")
    assert read_task(again.record).generation == 1
    assert (await cool(forgetful, again)).verdict is Verdict.DROP


async def test_of_several_limits_the_one_that_is_full_is_named(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    holder = await ledger_client.start(worker, "holder")
    assert await ledger_client.acquire("holder", holder.epoch, [("B", 1)]) == ACQUIRED
    run = await ledger_client.start(worker, "k")
    assert await ledger_client.ledger.limits.acquire("k", run.epoch, [("C", 1), ("B", 1), ("A", 1)]) == (PARKED, 2)


async def test_a_leader_that_was_put_back_with_another_due_time_still_leads(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    leader = await ledger_client.start(worker, "leader")
    assert (await settle_down(ledger_client, leader)).verdict is Verdict.DELAY
    ledger_client.fall_due("leader")
    await ledger_client.ledger.tasks.stage()
    (leader,) = await ledger_client.take(worker)
    await ledger_client.settle(requeue("leader", leader.epoch, delay_ms=50))
    ledger_client.fall_due("leader")
    await ledger_client.ledger.tasks.stage()
    (leader,) = await ledger_client.take(worker)
    assert (await settle_down(ledger_client, leader, settle_ms=1)).verdict is Verdict.ADMIT


async def test_each_submission_that_was_let_through_and_parked_is_let_through_again(
    ledger_client: LedgerClient,
) -> None:
    """Also if others were let through meanwhile."""
    worker = await ledger_client.hire()
    holder = await ledger_client.start(worker, "holder")
    assert await ledger_client.acquire("holder", holder.epoch, [("L", 1)]) == ACQUIRED
    for key in ("a", "b"):
        run = await ledger_client.start(worker, key)
        assert (await settle_down(ledger_client, run, settle_ms=1)).verdict is Verdict.DELAY
        ledger_client.fall_due(key)
        await ledger_client.ledger.tasks.stage()
        (run,) = await ledger_client.take(worker)
        taken = took(await settle_down(ledger_client, run, settle_ms=0))
        assert await ledger_client.acquire(key, run.epoch, [("L", 1)], taken=taken) == PARKED

    a = await woken(ledger_client, worker, holder)
    assert a.key == "a"
    assert (await settle_down(ledger_client, a)).verdict is Verdict.ADMIT
    assert await ledger_client.acquire("a", a.epoch, [("L", 1)]) == ACQUIRED
    b = await woken(ledger_client, worker, a)
    assert (await settle_down(ledger_client, b)).verdict is Verdict.ADMIT
    ledger_client.checked_state()


async def test_a_leader_that_is_overtaken_is_told_so_at_its_next_run(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    leader = await ledger_client.start(worker, "leader")
    assert (await settle_down(ledger_client, leader, latest=True)).verdict is Verdict.DELAY
    other = await ledger_client.start(worker, "other")
    assert (await settle_down(ledger_client, other, latest=True)).verdict is Verdict.DELAY
    ledger_client.checked_state()

    (leader,) = await ledger_client.take(worker)
    assert leader.key == "leader"
    decisions = [await settle_down(ledger_client, leader, latest=True) for _ in range(2)]
    assert [(decision.verdict, decision.overtaken) for decision in decisions] == [(Verdict.DROP, True)] * 2
    assert decisions[-1].wait_ms == 2 * WINDOW_MS
    assert await ledger_client.settle(ended(leader, ExecutionState.CANCELLED)) == [SettleResult.DONE]

    ledger_client.fall_due("other")
    await ledger_client.ledger.tasks.stage()
    (other,) = await ledger_client.take(worker)
    assert (await settle_down(ledger_client, other, latest=True, settle_ms=0)).verdict is Verdict.ADMIT


async def test_a_leader_that_runs_when_it_is_overtaken_is_told_so(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.start(worker, "earlier")
    leader = await ledger_client.start(worker, "leader")
    assert (await settle_down(ledger_client, leader, latest=True)).verdict is Verdict.DELAY
    ledger_client.fall_due("leader")
    await ledger_client.ledger.tasks.stage()
    (leader,) = await ledger_client.take(worker)
    other = await ledger_client.start(worker, "other")
    assert (await settle_down(ledger_client, other, latest=True)).verdict is Verdict.DELAY
    decision = await settle_down(ledger_client, leader, latest=True)
    assert (decision.verdict, decision.overtaken) == (Verdict.DROP, True)
    ledger_client.checked_state()


async def test_marks_of_submissions_that_are_gone_do_not_pile_up(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    for n in range(300):
        run = await ledger_client.start(worker, f"k{n}")
        assert (await settle_down(ledger_client, run, latest=True)).verdict is Verdict.DELAY
        if n:
            await ledger_client.ledger.tasks.cancel(f"k{n - 1}")
    state = ledger_client.ledger.keys.debounce("D")
    assert ledger_client.client.hlen(state) < 100


async def lose(ledger_client: LedgerClient, worker: str) -> tuple[str, Delivery]:
    """The worker dies; another one has its only run."""
    ledger_client.bury(worker)
    other = await ledger_client.hire()
    (run,) = await ledger_client.take(other)
    return other, run


async def test_a_redelivery_that_is_parked_keeps_the_window_in_which_its_body_began(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    took(await cool(ledger_client, run), await pace(ledger_client, run))
    other, run = await lose(ledger_client, worker)
    taken = took(await cool(ledger_client, run), await pace(ledger_client, run))
    holder = await ledger_client.start(other, "holder")
    assert await ledger_client.acquire("holder", holder.epoch, [("L", 1)]) == ACQUIRED
    assert await ledger_client.acquire("k", run.epoch, [("L", 1)], taken=taken) == PARKED

    newcomer = await ledger_client.start(other, "newcomer")
    assert (await cool(ledger_client, newcomer)).verdict is Verdict.DROP
    assert (await pace(ledger_client, newcomer, drop=True)).verdict is Verdict.DROP


async def test_a_redelivery_is_not_dropped_by_the_window_that_another_task_opened_meanwhile(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    took(await cool(ledger_client, run))
    ledger_client.client.delete(ledger_client.ledger.keys.cooldown("C"))
    bystander = await ledger_client.hire()
    other = await ledger_client.start(bystander, "other")
    took(await cool(ledger_client, other))

    _, run = await lose(ledger_client, worker)
    assert (await cool(ledger_client, run)).verdict is Verdict.ADMIT
    newcomer = await ledger_client.start(bystander, "newcomer")
    assert (await cool(ledger_client, newcomer)).verdict is Verdict.DROP


async def test_a_task_that_was_lost_before_it_was_let_in_is_judged_as_a_newcomer(ledger_client: LedgerClient) -> None:
    worker, bystander = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.start(worker, "k")
    other = await ledger_client.start(bystander, "other")
    took(await cool(ledger_client, other))
    _, run = await lose(ledger_client, worker)
    assert (await cool(ledger_client, run)).verdict is Verdict.DROP


async def test_a_stale_run_does_not_close_the_window_in_which_its_redelivery_ran(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    stale = await ledger_client.start(worker, "k")
    taken = took(await cool(ledger_client, stale), await pace(ledger_client, stale))
    other, run = await lose(ledger_client, worker)
    took(await cool(ledger_client, run), await pace(ledger_client, run))
    await ledger_client.settle(completed(run))
    again = await ledger_client.start(other, "k")

    late = as_blocked(reschedule("k", stale.epoch, attempt=1, is_delayed=True), taken)
    assert await ledger_client.settle(late) == [SettleResult.LOST]
    assert (await cool(ledger_client, again)).verdict is Verdict.DROP
    assert (await pace(ledger_client, again, drop=True)).verdict is Verdict.DROP


async def test_a_debounced_task_that_was_let_through_and_lost_is_let_through_again(ledger_client: LedgerClient) -> None:
    """Also if another burst was let through meanwhile."""
    worker, bystander = await ledger_client.hire(), await ledger_client.hire()
    for holder, key in ((worker, "k"), (bystander, "other")):
        run = await ledger_client.start(holder, key)
        assert (await settle_down(ledger_client, run, settle_ms=1)).verdict is Verdict.DELAY
        ledger_client.fall_due(key)
        await ledger_client.ledger.tasks.stage()
        (run,) = await ledger_client.take(holder)
        took(await settle_down(ledger_client, run, settle_ms=0))
    _, run = await lose(ledger_client, worker)
    assert (await settle_down(ledger_client, run)).verdict is Verdict.ADMIT


async def test_windows_from_before_the_clock_was_set_back_are_not_believed(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    hour = 3_600_000
    ledger_client.client.set(
        ledger_client.ledger.keys.cooldown("C"), f"{ledger_client.now() + WINDOW_MS + hour} 1 1 1 gone"
    )
    ledger_client.client.zadd(ledger_client.ledger.keys.rate("R"), {"1 1 gone": ledger_client.now() + hour})
    run = await ledger_client.start(worker, "k")
    assert (await cool(ledger_client, run)).verdict is Verdict.ADMIT
    decision = await pace(ledger_client, run)
    assert decision.verdict is Verdict.DELAY
    assert decision.wait_ms <= WINDOW_MS
