"""What one worker does for the fleet, and who takes it over."""

from __future__ import annotations

from docket.ledger import Duty
from docket.storage.keys import text_bytes

from .ledger_client import LedgerClient

NONE, LEADER, DEPUTY = Duty.NONE, Duty.LEADER, Duty.DEPUTY


def holders(ledger_client: LedgerClient) -> tuple[str | None, str | None]:
    fleet = ledger_client.checked_state().fleet
    return fleet.get("leader"), fleet.get("deputy")


async def overdue(ledger_client: LedgerClient, key: str = "k", ms: float = 600) -> None:
    """A task that should have been staged so long ago."""
    await ledger_client.add(key, due_ms=ledger_client.later())
    ledger_client.client.zadd(ledger_client.ledger.keys.schedule, {text_bytes(key): ledger_client.now() - ms}, xx=True)


async def test_the_first_worker_leads_the_second_is_its_deputy_and_the_rest_have_no_duty(
    ledger_client: LedgerClient,
) -> None:
    workers = [await ledger_client.hire() for _ in range(4)]
    assert holders(ledger_client) == (workers[0], workers[1])
    duties = [(await ledger_client.ledger.tasks.stage(worker=worker)).duty for worker in workers]
    assert duties == [LEADER, DEPUTY, NONE, NONE]


async def test_only_the_leader_stages_what_has_just_fallen_due(ledger_client: LedgerClient) -> None:
    leader, deputy, third = [await ledger_client.hire() for _ in range(3)]
    await overdue(ledger_client, ms=100)
    for worker in (deputy, third):
        staged = await ledger_client.ledger.tasks.stage(worker=worker)
        assert staged.moved == 0
        assert staged.next_ms is not None
    assert (await ledger_client.ledger.tasks.stage(worker=leader)).moved == 1


async def test_the_deputy_leads_from_the_first_task_that_is_overdue(ledger_client: LedgerClient) -> None:
    leader, deputy, third = [await ledger_client.hire() for _ in range(3)]
    await overdue(ledger_client)
    assert (await ledger_client.ledger.tasks.stage(worker=third)).moved == 0
    assert (await ledger_client.ledger.tasks.stage(worker=deputy))[::3] == (1, LEADER)
    assert holders(ledger_client) == (deputy, leader)
    # The former leader learns of it when it wants to stage, and is the deputy now.
    await overdue(ledger_client, "next", ms=100)
    assert (await ledger_client.ledger.tasks.stage(worker=leader))[::3] == (0, DEPUTY)


async def test_a_leader_that_works_off_a_backlog_is_not_taken_for_one_that_is_held_up(
    ledger_client: LedgerClient,
) -> None:
    leader, deputy = await ledger_client.hire(), await ledger_client.hire()
    for n in range(4):
        await overdue(ledger_client, f"k{n}")
    assert (await ledger_client.ledger.tasks.stage(2, leader)).moved == 2
    assert (await ledger_client.ledger.tasks.stage(2, deputy))[::3] == (0, DEPUTY)
    assert (await ledger_client.ledger.tasks.stage(2, leader)).moved == 2


async def test_where_both_are_held_up_one_worker_that_renews_is_asked_to_stage(ledger_client: LedgerClient) -> None:
    workers = [await ledger_client.hire() for _ in range(5)]
    await overdue(ledger_client, ms=1500)
    asked = [worker for worker in workers[2:] if ledger_client.renew(worker).staging_is_due]
    assert asked == workers[2:3]
    assert (await ledger_client.ledger.tasks.stage(worker=workers[3])).moved == 0
    assert (await ledger_client.ledger.tasks.stage(worker=workers[2], summoned=True))[::3] == (1, LEADER)
    assert holders(ledger_client) == (workers[2], workers[1])
    assert (await ledger_client.ledger.tasks.stage(worker=workers[0])).duty is NONE


async def test_nobody_is_asked_while_tasks_are_staged_in_time(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await overdue(ledger_client, ms=300)
    assert not ledger_client.renew(worker).staging_is_due


async def test_when_the_leader_is_gone_its_deputy_leads_at_once_and_whoever_renews_next_is_the_deputy(
    ledger_client: LedgerClient,
) -> None:
    leader, deputy, third = [await ledger_client.hire() for _ in range(3)]
    await ledger_client.ledger.fleet.leave(leader)
    assert holders(ledger_client) == (deputy, None)
    assert ledger_client.renew(third).reclaiming_is_due
    ledger_client.reclaim(third)
    assert holders(ledger_client) == (deputy, third)
    assert not ledger_client.renew(deputy).reclaiming_is_due


async def test_a_worker_that_is_declared_dead_loses_its_duty(ledger_client: LedgerClient) -> None:
    leader, deputy, third = [await ledger_client.hire() for _ in range(3)]
    ledger_client.end_lease(leader)
    assert ledger_client.renew(third).reclaiming_is_due
    ledger_client.reclaim(third)
    assert holders(ledger_client) == (deputy, third)
    ledger_client.end_lease(deputy)
    ledger_client.reclaim(third)
    assert holders(ledger_client) == (third, None)


async def test_a_worker_that_stops_has_no_duty_while_it_drains(ledger_client: LedgerClient) -> None:
    leader, deputy, third = [await ledger_client.hire() for _ in range(3)]
    await ledger_client.ledger.fleet.resign(leader)
    assert holders(ledger_client) == (deputy, None)
    # It renews still, and hears of the vacancy, too.
    assert ledger_client.renew(leader).reclaiming_is_due
    step = ledger_client.ledger.fleet.reclaim(ledger_client.client, leader, 1000, 1000, willing=False)
    assert step.duty is NONE
    ledger_client.client.zadd(ledger_client.ledger.keys.leases, {"": 1}, xx=True)
    assert ledger_client.renew(third).reclaiming_is_due
    ledger_client.reclaim(third)
    assert holders(ledger_client) == (deputy, third)


async def test_a_worker_without_a_lease_gets_no_duty(ledger_client: LedgerClient) -> None:
    leader = await ledger_client.hire()
    await ledger_client.ledger.fleet.leave(leader)
    await overdue(ledger_client)
    assert (await ledger_client.ledger.tasks.stage(worker=leader, summoned=True))[::3] == (0, NONE)
    assert holders(ledger_client) == (None, None)


async def test_a_server_that_came_back_empty_gets_a_leader_with_the_first_that_registers(
    ledger_client: LedgerClient,
) -> None:
    leader, other = await ledger_client.hire(), await ledger_client.hire()
    ledger_client.client.flushdb()
    assert (await ledger_client.ledger.fleet.register(other, 60_000, ["f"])).duty is LEADER
    assert (await ledger_client.ledger.fleet.register(leader, 60_000, ["f"])).duty is DEPUTY
