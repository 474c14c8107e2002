"""What a run took of its limits and did not use: given back by the write that ends the run, and by nothing else."""

from __future__ import annotations

import pytest

from docket.ledger import Answer, Delivery, Taken, giving_back, hand_back, reschedule
from docket.ledger.limits import Decision, LimitBook, Verdict
from docket.model.states import ExecutionState
from docket.storage.records import read_task

from .desk import Desk, completed, ended, new_ledger

ACQUIRED, PARKED = 1, 2
WINDOW_MS = 3_600_000


async def cool(desk: Desk, run: Delivery, taken: list[Taken] | None = None) -> Decision:
    return await LimitBook(desk.ledger).cool_down(run.key, run.epoch, "C", WINDOW_MS, taken=taken or [])


async def pace(desk: Desk, run: Delivery, taken: list[Taken] | None = None, *, drop: bool = False) -> Decision:
    return await LimitBook(desk.ledger).rate(run.key, run.epoch, "R", 1, WINDOW_MS, drop=drop, taken=taken or [])


async def settle_down(desk: Desk, run: Delivery, *, latest: bool = False, settle_ms: int = WINDOW_MS) -> Decision:
    return await LimitBook(desk.ledger).debounce(run.key, run.epoch, "D", settle_ms, latest=latest)


def took(*decisions: Decision) -> list[Taken]:
    assert all(decision.verdict is Verdict.GO for decision in decisions)
    return [decision.taken for decision in decisions if decision.taken is not None]


async def woken(desk: Desk, worker: str, holder: Delivery) -> Delivery:
    await desk.settle(completed(holder))
    (run,) = await desk.take(worker)
    return run


async def test_a_run_that_is_parked_gives_back_its_window_and_its_place(desk: Desk) -> None:
    worker = await desk.hire()
    holder = await desk.start(worker, "holder")
    assert await desk.acquire("holder", holder.epoch, [("L", 1)]) == ACQUIRED
    run = await desk.start(worker, "k")
    taken = took(await cool(desk, run), await pace(desk, run))
    assert await desk.acquire("k", run.epoch, [("L", 1)], taken=taken) == PARKED

    other = await desk.start(worker, "other")
    assert (await cool(desk, other)).verdict is Verdict.GO
    assert (await pace(desk, other)).verdict is Verdict.GO


async def test_a_worker_that_was_held_up_does_not_give_back_the_window_of_the_next_run(desk: Desk) -> None:
    worker = await desk.hire()
    holder = await desk.start(worker, "holder")
    assert await desk.acquire("holder", holder.epoch, [("L", 1)]) == ACQUIRED
    held_up = await desk.start(worker, "k")
    taken = took(await cool(desk, held_up))
    assert await desk.acquire("k", held_up.epoch, [("L", 1)], taken=taken) == PARKED
    run = await woken(desk, worker, holder)
    took(await cool(desk, run))

    blocked = giving_back(ended(held_up, ExecutionState.CANCELLED), taken)
    assert await desk.settle(blocked) == [Answer.LOST]

    other = await desk.start(worker, "other")
    assert (await cool(desk, other)).verdict is Verdict.DROP


async def test_a_run_that_a_rate_puts_off_gives_back_its_window(desk: Desk) -> None:
    worker = await desk.hire()
    first = await desk.start(worker, "first")
    took(await pace(desk, first))
    run = await desk.start(worker, "k")
    taken = took(await cool(desk, run))
    assert (await pace(desk, run, taken)).verdict is Verdict.PUT_OFF

    other = await desk.start(worker, "other")
    assert (await cool(desk, other)).verdict is Verdict.GO


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_run_that_settles_as_blocked_gives_back_what_it_took(desk: Desk, comes_back: bool) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    taken = took(await cool(desk, run), await pace(desk, run))
    later = reschedule("k", run.epoch, attempt=1, delay_ms=WINDOW_MS, put_off=True)
    settlement = later if comes_back else ended(run, ExecutionState.CANCELLED)
    assert await desk.settle(giving_back(settlement, taken)) == [Answer.DONE]

    other = await desk.start(worker, "other")
    assert (await cool(desk, other)).verdict is Verdict.GO
    assert (await pace(desk, other)).verdict is Verdict.GO
    desk.sound_books()


async def test_a_run_that_was_replaced_gives_back_what_its_replacement_needs(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    taken = took(await cool(desk, run))
    await desk.add("k", replace=True)
    assert await desk.acquire("k", run.epoch, [("L", 1)], taken=taken) == 0
    later = reschedule("k", run.epoch, attempt=1, put_off=True)
    assert await desk.settle(giving_back(later, taken)) == [Answer.LOST]

    (replacement,) = await desk.take(worker)
    assert (await cool(desk, replacement)).verdict is Verdict.GO


async def test_a_window_serves_the_redelivery_of_the_run_that_opened_it_however_often_it_is_lost(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    took(await cool(desk, run), await pace(desk, run))
    for _ in range(2):
        desk.bury(worker)
        worker = await desk.hire()
        (run,) = await desk.take(worker)
        assert (await cool(desk, run)).verdict is Verdict.GO
    # As a suspect that has to wait for its worker: its due time is another.
    await desk.settle(hand_back("k", run.epoch, delay_ms=50))
    desk.fall_due("k")
    await desk.ledger.stage()
    (run,) = await desk.take(worker)
    assert (await cool(desk, run)).verdict is Verdict.GO
    assert (await pace(desk, run)).verdict is Verdict.GO


async def test_the_next_run_of_a_chain_is_another_submission_and_a_put_off_is_the_same(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    first = read_task(run.record).submission
    await desk.settle(reschedule("k", run.epoch, attempt=1, put_off=True))
    (run,) = await desk.take(worker)
    assert read_task(run.record).submission == first
    took(await cool(desk, run))
    await desk.settle(reschedule("k", run.epoch, attempt=1))
    (run,) = await desk.take(worker)
    assert read_task(run.record).submission == first + 1
    assert (await cool(desk, run)).verdict is Verdict.DROP


async def test_a_key_that_is_added_again_after_its_record_is_gone_is_another_submission(desk: Desk) -> None:
    forgetful = Desk(new_ledger(desk.ledger.server, ttl_ms=0), desk.client)
    worker = await forgetful.hire()
    run = await forgetful.start(worker, "k")
    took(await cool(forgetful, run))
    await forgetful.settle(completed(run, ttl_ms=0))

    again = await forgetful.start(worker, "k")
    assert read_task(again.record).generation == 1
    assert (await cool(forgetful, again)).verdict is Verdict.DROP


async def test_of_several_limits_the_one_that_is_full_is_named(desk: Desk) -> None:
    worker = await desk.hire()
    holder = await desk.start(worker, "holder")
    assert await desk.acquire("holder", holder.epoch, [("B", 1)]) == ACQUIRED
    run = await desk.start(worker, "k")
    assert await LimitBook(desk.ledger).acquire("k", run.epoch, [("C", 1), ("B", 1), ("A", 1)]) == (PARKED, 2)


async def test_a_leader_that_was_put_back_with_another_due_time_still_leads(desk: Desk) -> None:
    worker = await desk.hire()
    leader = await desk.start(worker, "leader")
    assert (await settle_down(desk, leader)).verdict is Verdict.PUT_OFF
    desk.fall_due("leader")
    await desk.ledger.stage()
    (leader,) = await desk.take(worker)
    await desk.settle(hand_back("leader", leader.epoch, delay_ms=50))
    desk.fall_due("leader")
    await desk.ledger.stage()
    (leader,) = await desk.take(worker)
    assert (await settle_down(desk, leader, settle_ms=1)).verdict is Verdict.GO


async def test_each_submission_that_was_let_through_and_parked_is_let_through_again(desk: Desk) -> None:
    """Also if others were let through meanwhile."""
    worker = await desk.hire()
    holder = await desk.start(worker, "holder")
    assert await desk.acquire("holder", holder.epoch, [("L", 1)]) == ACQUIRED
    for key in ("a", "b"):
        run = await desk.start(worker, key)
        assert (await settle_down(desk, run, settle_ms=1)).verdict is Verdict.PUT_OFF
        desk.fall_due(key)
        await desk.ledger.stage()
        (run,) = await desk.take(worker)
        taken = took(await settle_down(desk, run, settle_ms=0))
        assert await desk.acquire(key, run.epoch, [("L", 1)], taken=taken) == PARKED

    a = await woken(desk, worker, holder)
    assert a.key == "a"
    assert (await settle_down(desk, a)).verdict is Verdict.GO
    assert await desk.acquire("a", a.epoch, [("L", 1)]) == ACQUIRED
    b = await woken(desk, worker, a)
    assert (await settle_down(desk, b)).verdict is Verdict.GO
    desk.sound_books()


async def test_a_leader_that_is_overtaken_is_told_so_at_its_next_run(desk: Desk) -> None:
    worker = await desk.hire()
    leader = await desk.start(worker, "leader")
    assert (await settle_down(desk, leader, latest=True)).verdict is Verdict.PUT_OFF
    other = await desk.start(worker, "other")
    assert (await settle_down(desk, other, latest=True)).verdict is Verdict.PUT_OFF
    desk.sound_books()

    (leader,) = await desk.take(worker)
    assert leader.key == "leader"
    decisions = [await settle_down(desk, leader, latest=True) for _ in range(2)]
    assert [(decision.verdict, decision.overtaken) for decision in decisions] == [(Verdict.DROP, True)] * 2
    assert decisions[-1].wait_ms == 2 * WINDOW_MS
    assert await desk.settle(ended(leader, ExecutionState.CANCELLED)) == [Answer.DONE]

    desk.fall_due("other")
    await desk.ledger.stage()
    (other,) = await desk.take(worker)
    assert (await settle_down(desk, other, latest=True, settle_ms=0)).verdict is Verdict.GO


async def test_a_leader_that_runs_when_it_is_overtaken_is_told_so(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.start(worker, "earlier")
    leader = await desk.start(worker, "leader")
    assert (await settle_down(desk, leader, latest=True)).verdict is Verdict.PUT_OFF
    desk.fall_due("leader")
    await desk.ledger.stage()
    (leader,) = await desk.take(worker)
    other = await desk.start(worker, "other")
    assert (await settle_down(desk, other, latest=True)).verdict is Verdict.PUT_OFF
    decision = await settle_down(desk, leader, latest=True)
    assert (decision.verdict, decision.overtaken) == (Verdict.DROP, True)
    desk.sound_books()


async def test_marks_of_submissions_that_are_gone_do_not_pile_up(desk: Desk) -> None:
    worker = await desk.hire()
    for n in range(300):
        run = await desk.start(worker, f"k{n}")
        assert (await settle_down(desk, run, latest=True)).verdict is Verdict.PUT_OFF
        if n:
            await desk.ledger.cancel(f"k{n - 1}")
    state = desk.ledger.keys.debounce("D")
    assert desk.client.hlen(state) < 100


async def lose(desk: Desk, worker: str) -> tuple[str, Delivery]:
    """The worker dies; another one has its only run."""
    desk.bury(worker)
    other = await desk.hire()
    (run,) = await desk.take(other)
    return other, run


async def test_a_redelivery_that_is_parked_keeps_the_window_in_which_its_body_began(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    took(await cool(desk, run), await pace(desk, run))
    other, run = await lose(desk, worker)
    taken = took(await cool(desk, run), await pace(desk, run))
    holder = await desk.start(other, "holder")
    assert await desk.acquire("holder", holder.epoch, [("L", 1)]) == ACQUIRED
    assert await desk.acquire("k", run.epoch, [("L", 1)], taken=taken) == PARKED

    newcomer = await desk.start(other, "newcomer")
    assert (await cool(desk, newcomer)).verdict is Verdict.DROP
    assert (await pace(desk, newcomer, drop=True)).verdict is Verdict.DROP


async def test_a_redelivery_is_not_dropped_by_the_window_that_another_task_opened_meanwhile(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    took(await cool(desk, run))
    desk.client.delete(desk.ledger.keys.cooldown("C"))
    bystander = await desk.hire()
    other = await desk.start(bystander, "other")
    took(await cool(desk, other))

    _, run = await lose(desk, worker)
    assert (await cool(desk, run)).verdict is Verdict.GO
    newcomer = await desk.start(bystander, "newcomer")
    assert (await cool(desk, newcomer)).verdict is Verdict.DROP


async def test_a_task_that_was_lost_before_it_was_let_in_is_judged_as_a_newcomer(desk: Desk) -> None:
    worker, bystander = await desk.hire(), await desk.hire()
    await desk.start(worker, "k")
    other = await desk.start(bystander, "other")
    took(await cool(desk, other))
    _, run = await lose(desk, worker)
    assert (await cool(desk, run)).verdict is Verdict.DROP


async def test_a_stale_run_does_not_close_the_window_in_which_its_redelivery_ran(desk: Desk) -> None:
    worker = await desk.hire()
    stale = await desk.start(worker, "k")
    taken = took(await cool(desk, stale), await pace(desk, stale))
    other, run = await lose(desk, worker)
    took(await cool(desk, run), await pace(desk, run))
    await desk.settle(completed(run))
    again = await desk.start(other, "k")

    late = giving_back(reschedule("k", stale.epoch, attempt=1, put_off=True), taken)
    assert await desk.settle(late) == [Answer.LOST]
    assert (await cool(desk, again)).verdict is Verdict.DROP
    assert (await pace(desk, again, drop=True)).verdict is Verdict.DROP


async def test_a_debounced_task_that_was_let_through_and_lost_is_let_through_again(desk: Desk) -> None:
    """Also if another burst was let through meanwhile."""
    worker, bystander = await desk.hire(), await desk.hire()
    for holder, key in ((worker, "k"), (bystander, "other")):
        run = await desk.start(holder, key)
        assert (await settle_down(desk, run, settle_ms=1)).verdict is Verdict.PUT_OFF
        desk.fall_due(key)
        await desk.ledger.stage()
        (run,) = await desk.take(holder)
        took(await settle_down(desk, run, settle_ms=0))
    _, run = await lose(desk, worker)
    assert (await settle_down(desk, run)).verdict is Verdict.GO


async def test_windows_from_before_the_clock_was_set_back_are_not_believed(desk: Desk) -> None:
    worker = await desk.hire()
    hour = 3_600_000
    desk.client.set(desk.ledger.keys.cooldown("C"), f"{desk.now() + WINDOW_MS + hour} 1 1 1 gone")
    desk.client.zadd(desk.ledger.keys.rate("R"), {"1 1 gone": desk.now() + hour})
    run = await desk.start(worker, "k")
    assert (await cool(desk, run)).verdict is Verdict.GO
    decision = await pace(desk, run)
    assert decision.verdict is Verdict.PUT_OFF
    assert decision.wait_ms <= WINDOW_MS
