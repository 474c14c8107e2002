"""What one worker does for the fleet, and who takes it over."""

from __future__ import annotations

from docket.ledger import Duty
from docket.storage.keys import text_bytes

from .desk import Desk

NONE, LEADER, DEPUTY = Duty.NONE, Duty.LEADER, Duty.DEPUTY


def holders(desk: Desk) -> tuple[str | None, str | None]:
    fleet = desk.sound_books().fleet
    return fleet.get("leader"), fleet.get("deputy")


async def overdue(desk: Desk, key: str = "k", ms: float = 600) -> None:
    """A task that should have been staged so long ago."""
    await desk.add(key, due_ms=desk.later())
    desk.client.zadd(desk.ledger.keys.queue, {text_bytes(key): desk.now() - ms}, xx=True)


async def test_the_first_worker_leads_the_second_is_its_deputy_and_the_rest_have_no_duty(desk: Desk) -> None:
    workers = [await desk.hire() for _ in range(4)]
    assert holders(desk) == (workers[0], workers[1])
    duties = [(await desk.ledger.stage(worker=worker)).duty for worker in workers]
    assert duties == [LEADER, DEPUTY, NONE, NONE]


async def test_only_the_leader_stages_what_has_just_fallen_due(desk: Desk) -> None:
    leader, deputy, third = [await desk.hire() for _ in range(3)]
    await overdue(desk, ms=100)
    for worker in (deputy, third):
        staged = await desk.ledger.stage(worker=worker)
        assert staged.moved == 0
        assert staged.next_ms is not None
    assert (await desk.ledger.stage(worker=leader)).moved == 1


async def test_the_deputy_leads_from_the_first_task_that_is_overdue(desk: Desk) -> None:
    leader, deputy, third = [await desk.hire() for _ in range(3)]
    await overdue(desk)
    assert (await desk.ledger.stage(worker=third)).moved == 0
    assert (await desk.ledger.stage(worker=deputy))[::3] == (1, LEADER)
    assert holders(desk) == (deputy, leader)
    # The former leader learns of it when it wants to stage, and is the deputy now.
    await overdue(desk, "next", ms=100)
    assert (await desk.ledger.stage(worker=leader))[::3] == (0, DEPUTY)


async def test_a_leader_that_works_off_a_backlog_is_not_taken_for_one_that_is_held_up(desk: Desk) -> None:
    leader, deputy = await desk.hire(), await desk.hire()
    for n in range(4):
        await overdue(desk, f"k{n}")
    assert (await desk.ledger.stage(2, leader)).moved == 2
    assert (await desk.ledger.stage(2, deputy))[::3] == (0, DEPUTY)
    assert (await desk.ledger.stage(2, leader)).moved == 2


async def test_where_both_are_held_up_one_worker_that_renews_is_asked_to_stage(desk: Desk) -> None:
    workers = [await desk.hire() for _ in range(5)]
    await overdue(desk, ms=1500)
    asked = [worker for worker in workers[2:] if desk.renew(worker).staging_is_due]
    assert asked == workers[2:3]
    assert (await desk.ledger.stage(worker=workers[3])).moved == 0
    assert (await desk.ledger.stage(worker=workers[2], summoned=True))[::3] == (1, LEADER)
    assert holders(desk) == (workers[2], workers[1])
    assert (await desk.ledger.stage(worker=workers[0])).duty is NONE


async def test_nobody_is_asked_while_tasks_are_staged_in_time(desk: Desk) -> None:
    worker = await desk.hire()
    await overdue(desk, ms=300)
    assert not desk.renew(worker).staging_is_due


async def test_when_the_leader_is_gone_its_deputy_leads_at_once_and_whoever_renews_next_is_the_deputy(
    desk: Desk,
) -> None:
    leader, deputy, third = [await desk.hire() for _ in range(3)]
    await desk.ledger.leave(leader)
    assert holders(desk) == (deputy, None)
    assert desk.renew(third).reclaiming_is_due
    desk.reclaim(third)
    assert holders(desk) == (deputy, third)
    assert not desk.renew(deputy).reclaiming_is_due


async def test_a_worker_that_is_declared_dead_loses_its_duty(desk: Desk) -> None:
    leader, deputy, third = [await desk.hire() for _ in range(3)]
    desk.end_lease(leader)
    assert desk.renew(third).reclaiming_is_due
    desk.reclaim(third)
    assert holders(desk) == (deputy, third)
    desk.end_lease(deputy)
    desk.reclaim(third)
    assert holders(desk) == (third, None)


async def test_a_worker_that_stops_has_no_duty_while_it_drains(desk: Desk) -> None:
    leader, deputy, third = [await desk.hire() for _ in range(3)]
    await desk.ledger.resign(leader)
    assert holders(desk) == (deputy, None)
    # It renews still, and hears of the vacancy, too.
    assert desk.renew(leader).reclaiming_is_due
    step = desk.ledger.reclaim(desk.client, leader, 1000, 1000, willing=False)
    assert step.duty is NONE
    desk.client.zadd(desk.ledger.keys.leases, {"": 1}, xx=True)
    assert desk.renew(third).reclaiming_is_due
    desk.reclaim(third)
    assert holders(desk) == (deputy, third)


async def test_a_worker_without_a_lease_gets_no_duty(desk: Desk) -> None:
    leader = await desk.hire()
    await desk.ledger.leave(leader)
    await overdue(desk)
    assert (await desk.ledger.stage(worker=leader, summoned=True))[::3] == (0, NONE)
    assert holders(desk) == (None, None)


async def test_a_server_that_came_back_empty_gets_a_leader_with_the_first_that_registers(desk: Desk) -> None:
    leader, other = await desk.hire(), await desk.hire()
    desk.client.flushdb()
    assert (await desk.ledger.register(other, 60_000, ["f"])).duty is LEADER
    assert (await desk.ledger.register(leader, 60_000, ["f"])).duty is DEPUTY
