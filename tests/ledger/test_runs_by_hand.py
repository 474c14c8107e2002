"""Runs that are claimed by hand: a lease of their own, and the sweep for those whose lease has ended."""

from __future__ import annotations

from docket.ledger import Answer, Delivery
from docket.ledger.workers import hand_id

from .desk import LEASE_MS, Desk, completed


async def claim(desk: Desk, key: str, lease_ms: int = LEASE_MS) -> tuple[str, Delivery]:
    hand = hand_id("somebody")
    now_ms, epoch = await desk.ledger.seize(key, "somebody", hand, lease_ms)
    assert epoch
    return hand, Delivery(key, b"", epoch, now_ms)


def end_lease(desk: Desk, hand: str) -> None:
    desk.client.zadd(desk.ledger.keys.key("hand-leases"), {hand: 1}, xx=True)


async def test_a_run_by_hand_is_left_alone_while_its_lease_holds(desk: Desk) -> None:
    for key, options in {"ready": {}, "scheduled": {"due_ms": desk.later()}}.items():
        await desk.add(key, **options)
        _, run = await claim(desk, key)
        assert desk.sweep() == 0
        assert desk.books().running[key].epoch == run.epoch
        assert await desk.settle(completed(run)) == [Answer.DONE]
    desk.sound_books()


async def test_a_run_by_hand_whose_lease_has_ended_is_put_back(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("k")
    hand, run = await claim(desk, "k")
    end_lease(desk, hand)
    assert desk.sweep() == 1
    desk.sound_books()

    (again,) = await desk.take(worker)
    assert again.key == "k"
    assert await desk.settle(completed(run)) == [Answer.LOST]
    assert await desk.settle(completed(again)) == [Answer.DONE]


async def test_a_lease_by_hand_can_be_extended(desk: Desk) -> None:
    await desk.add("k")
    hand, _ = await claim(desk, "k")
    end_lease(desk, hand)
    await desk.ledger.hold([hand], LEASE_MS)
    assert desk.sweep() == 0


async def test_a_caller_that_runs_a_task_by_hand_is_not_on_the_roster(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("k")
    await claim(desk, "k")
    assert [row.id for row in await desk.ledger.roster()] == [worker]


async def test_the_sweep_forgets_leases_by_hand_that_have_ended(desk: Desk) -> None:
    await desk.add("k")
    hand, run = await claim(desk, "k")
    await desk.settle(completed(run))
    end_lease(desk, hand)
    desk.sweep()
    assert not desk.client.exists(desk.ledger.keys.key("hand-leases"))
