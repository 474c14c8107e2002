"""What happens to work when a worker, a consumer group, a script or all data is gone."""

from __future__ import annotations

import pytest

from docket.ledger import ProgressChange, SettleResult, Unwritten, requeue
from docket.storage.records import read_task

from .invariants import GROUP
from .ledger_client import LATE_MS, LEASE_MS, LedgerClient, completed, new_task

DONE, LOST = SettleResult.DONE, SettleResult.LOST


# A worker is lost


async def test_what_a_dead_worker_had_starts_elsewhere_and_nothing_of_it_stays(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire("f", "only mine"), await ledger_client.hire()
    await ledger_client.add("claimed", "delivered", "waiting")
    await ledger_client.take(worker, 1)
    ledger_client.read(worker, 1)
    ledger_client.end_lease(worker)
    assert ledger_client.reclaim() == [1, 2, 0, 0, 0]
    stored_state = ledger_client.checked_state()
    assert worker in stored_state.lost
    assert stored_state.tasks["claimed"].losses == 1
    assert stored_state.tasks["delivered"].losses == 0
    assert [run.key for run in await ledger_client.take(other)] == ["claimed", "delivered", "waiting"]
    [row] = await ledger_client.ledger.fleet.workers()
    assert row.id == other
    assert "only mine" not in row.functions


async def test_a_lease_that_has_not_ended_is_left_alone(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.start(worker, "k")
    before = ledger_client.stored_state()
    for _ in range(3):
        assert ledger_client.reclaim() == [0, 0, 0, 0, 0]
    assert ledger_client.stored_state() == before


async def test_whoever_renews_hears_of_a_lease_that_has_ended(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.start(worker, "k")
    assert not ledger_client.renew(other).reclaiming_is_due
    ledger_client.end_lease(worker)
    assert ledger_client.renew(other).reclaiming_is_due
    assert ledger_client.reclaim(thorough=False) == [1, 1, 0, 0, 0]
    assert not ledger_client.renew(other).reclaiming_is_due


async def test_whoever_renews_hears_of_a_dead_worker_that_is_only_half_recovered(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add(*(f"k{n}" for n in range(30)))
    await ledger_client.take(worker, 30)
    ledger_client.end_lease(worker)
    assert ledger_client.reclaim(thorough=False) == [1, 20, 0, 0, 1]
    # Whoever made that step is at it; if it died, another hears of it.
    assert not ledger_client.renew(other).reclaiming_is_due
    ledger_client.forget_reclaimer()
    assert ledger_client.renew(other).reclaiming_is_due
    assert ledger_client.reclaim(thorough=False) == [0, 10, 0, 0, 0]
    assert not ledger_client.renew(other).reclaiming_is_due


async def test_what_a_worker_leaves_behind_is_told_to_whoever_renews_next(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("k")
    ledger_client.read(worker)
    assert await ledger_client.ledger.fleet.leave(worker) is True
    assert ledger_client.renew(other).reclaiming_is_due
    assert ledger_client.reclaim(thorough=False)[:2] == [0, 1]
    ledger_client.checked_state()


async def test_what_a_lost_worker_was_given_after_its_end_is_told_to_whoever_renews_next(
    ledger_client: LedgerClient,
) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    ledger_client.bury(worker)
    await ledger_client.add("k")
    assert await ledger_client.claim(worker, ledger_client.read(worker)) is None
    assert ledger_client.renew(other).reclaiming_is_due
    assert ledger_client.reclaim(thorough=False)[:2] == [0, 1]
    assert [run.key for run in await ledger_client.take(other)] == ["k"]


@pytest.mark.parametrize("end", ["dies", "leaves"])
async def test_after_a_worker_is_gone_the_others_look_once_more_for_what_its_last_read_brought(
    ledger_client: LedgerClient, end: str
) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    if end == "dies":
        ledger_client.bury(worker)
    else:
        await ledger_client.ledger.fleet.leave(worker)
    await ledger_client.add("k")
    ledger_client.read(worker)
    look_at = ledger_client.stored_state().look_at
    assert look_at is not None
    assert ledger_client.now() < look_at < ledger_client.now() + 10_000
    ledger_client.client.zadd(ledger_client.ledger.keys.leases, {"": 1}, xx=True)
    ledger_client.client.hincrby(ledger_client.ledger.keys.key("fleet"), "gone-at", -10_000)
    assert ledger_client.renew(other).reclaiming_is_due
    assert ledger_client.reclaim(thorough=False)[:2] == [0, 1]
    assert ledger_client.checked_state().look_at is None


async def test_idle_workers_are_shown_no_cancel_requests_and_hear_of_them_when_they_run_something(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.ledger.tasks.cancel("k")
    assert (
        ledger_client.ledger.fleet.renew(ledger_client.client, worker, LEASE_MS, LATE_MS, busy=False).cancel_requests
        == []
    )
    assert ledger_client.renew(worker).cancel_requests == [(run.epoch, "k")]


async def test_a_thousand_deliveries_are_recovered_in_steps_of_twenty(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    keys = [f"k{n}" for n in range(1000)]
    for start in (0, 500):
        await ledger_client.add(*keys[start : start + 500])
        assert len(await ledger_client.take(worker, 500)) == 500
    ledger_client.end_lease(worker)
    steps = [ledger_client.reclaim()]
    while steps[-1][4]:
        ledger_client.checked_state()
        steps.append(ledger_client.reclaim())
    assert max(step[1] for step in steps) == 20
    assert sum(step[1] for step in steps) == 1000
    taken = [run.key for _ in range(2) for run in await ledger_client.take(other, 500)]
    assert taken == keys


async def test_an_orphan_behind_thousands_of_live_deliveries_is_found_at_once(ledger_client: LedgerClient) -> None:
    busy, dead = await ledger_client.hire(), await ledger_client.hire()
    for batch in range(10):
        await ledger_client.ledger.tasks.enqueue([new_task(f"{batch} {n}", fresh=True) for n in range(500)])
        await ledger_client.take(busy, 500)
    await ledger_client.add("orphan")
    assert [run.key for run in await ledger_client.take(dead)] == ["orphan"]
    ledger_client.end_lease(dead)
    assert ledger_client.reclaim()[:2] == [1, 1]
    assert [run.key for run in await ledger_client.take(busy, 1)] == ["orphan"]


async def test_workers_that_come_and_go_leave_nothing(ledger_client: LedgerClient) -> None:
    await ledger_client.add("k")
    for n in range(40):
        worker = await ledger_client.hire("f", f"only {n}")
        runs = await ledger_client.take(worker)
        if n % 2:
            ledger_client.bury(worker)
            ledger_client.reclaim()
        else:
            await ledger_client.settle(*(requeue(run.key, run.epoch) for run in runs))
            assert await ledger_client.ledger.fleet.leave(worker) is False
    stored_state = ledger_client.checked_state()
    assert not stored_state.consumers
    assert not stored_state.leases
    assert not stored_state.task_workers
    assert set(stored_state.finished) | set(stored_state.tasks) == {"k"}


async def test_a_worker_that_leaves_with_deliveries_gives_them_back_uncounted(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("a", "b")
    ledger_client.read(worker)
    assert await ledger_client.ledger.fleet.leave(worker) is True
    assert ledger_client.renew(worker).lost
    assert ledger_client.reclaim()[:2] == [0, 2]
    runs = await ledger_client.take(other)
    assert [(run.key, read_task(run.record).losses) for run in runs] == [("a", 0), ("b", 0)]
    assert ledger_client.checked_state().consumers == {other}


async def test_a_late_renewal_answers_lost_and_brings_nothing_back(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    ledger_client.bury(worker)
    before = ledger_client.stored_state()
    assert ledger_client.renew(worker).lost
    assert await ledger_client.settle(completed(run)) == [LOST]
    assert ledger_client.stored_state() == before


# The server stalled, or its clock jumped


async def test_after_a_stall_every_owner_gets_the_chance_to_renew(ledger_client: LedgerClient) -> None:
    alive, dead, first = await ledger_client.hire(), await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("a", "b")
    (a,) = await ledger_client.take(alive, 1)
    await ledger_client.take(dead, 1)

    # Nobody could renew for three leases, and all leases ended meanwhile.
    ledger_client.stall(3 * LEASE_MS)
    assert not ledger_client.renew(first).reclaiming_is_due
    assert ledger_client.reclaim(first) == [0, 0, 0, 0, 0]
    assert not ledger_client.renew(alive).lost

    end_grace(ledger_client)
    assert ledger_client.renew(first).reclaiming_is_due
    assert ledger_client.reclaim(first)[:2] == [1, 1]
    assert await ledger_client.settle(completed(a)) == [DONE]
    assert list(ledger_client.checked_state().tasks) == ["b"]


async def test_a_worker_that_was_declared_dead_does_not_hide_a_stall_from_the_others(
    ledger_client: LedgerClient,
) -> None:
    lost, alive, first = await ledger_client.hire(), await ledger_client.hire(), await ledger_client.hire()
    run = await ledger_client.start(alive, "k")
    ledger_client.bury(lost)

    ledger_client.stall(3 * LEASE_MS)
    # It is the first whose renewal arrives after the stall.
    assert ledger_client.renew(lost).lost
    assert not ledger_client.renew(first).reclaiming_is_due
    assert ledger_client.reclaim(first)[0] == 0
    assert not ledger_client.renew(alive).lost
    assert await ledger_client.settle(completed(run)) == [DONE]


async def test_after_a_stall_every_owner_has_a_whole_lease_to_renew(ledger_client: LedgerClient) -> None:
    """A worker that meets the end of an outage in the middle of an attempt needs that attempt's
    time-out, a pause, and another attempt."""
    lease_ms, ledger = 2_000, ledger_client.ledger
    alive, first = await ledger_client.hire(lease_ms=lease_ms), await ledger_client.hire(lease_ms=lease_ms)
    ledger_client.stall(3 * lease_ms)
    before = ledger_client.now()
    ledger.fleet.renew(ledger_client.client, first, lease_ms, lease_ms // 3, busy=True)
    grace_until = ledger_client.client.zscore(ledger.keys.leases, b"\1grace") + 1e15
    assert before + lease_ms <= grace_until <= ledger_client.now() + lease_ms
    assert not ledger.fleet.renew(ledger_client.client, alive, lease_ms, lease_ms // 3, busy=True).lost


async def test_a_worker_that_was_held_up_between_hearing_of_the_dead_and_reclaiming_declares_nobody(
    ledger_client: LedgerClient,
) -> None:
    alive, dead = await ledger_client.hire(), await ledger_client.hire()
    ledger_client.end_lease(dead)
    assert ledger_client.renew(alive).reclaiming_is_due
    ledger_client.stall(3 * LEASE_MS)
    assert ledger_client.reclaim(alive)[0] == 0


async def test_a_stall_that_is_shorter_than_the_lease_makes_nobody_look_for_the_dead(
    ledger_client: LedgerClient,
) -> None:
    """However many workers renew late at once."""
    workers = [await ledger_client.hire() for _ in range(300)]
    ledger_client.stall(LATE_MS + 1)
    answers = [ledger_client.renew(worker) for worker in workers]
    assert not any(answer.reclaiming_is_due or answer.lost for answer in answers)
    assert set(ledger_client.checked_state().leases) == set(workers)


async def test_a_worker_that_always_renews_late_finds_its_dead_in_the_end(ledger_client: LedgerClient) -> None:
    dead, alone = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.start(dead, "k")
    ledger_client.end_lease(dead)
    renewals, due = 0, False
    while not due:
        ledger_client.stall(LATE_MS + 1)
        age_gaps(ledger_client, LATE_MS + 1)
        due = ledger_client.renew(alone).reclaiming_is_due
        renewals += 1
        assert renewals < 20, "within a few leases"
    assert renewals >= 3, "three leases are given to come back"
    assert ledger_client.reclaim(alone)[:2] == [1, 1]


async def test_whoever_starts_after_everybody_was_gone_for_an_hour_finds_the_dead(ledger_client: LedgerClient) -> None:
    dead = await ledger_client.hire()
    await ledger_client.start(dead, "k")
    ledger_client.stall(3_600_000)
    first = await ledger_client.hire()
    # They may be cut off only, and be back in a moment.
    assert not ledger_client.renew(first).reclaiming_is_due
    end_grace(ledger_client)
    assert ledger_client.renew(first).reclaiming_is_due
    assert ledger_client.reclaim(first)[:2] == [1, 1]


async def test_a_clock_that_was_set_back_leaves_no_lease_for_ever(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.start(worker, "k")
    ledger_client.stall(-86_400_000)
    assert not ledger_client.renew(other).reclaiming_is_due
    assert ledger_client.stored_state().leases[worker] > ledger_client.now() + LEASE_MS
    ledger_client.ledger.fleet.correct_leases(ledger_client.client)
    assert ledger_client.stored_state().leases[worker] <= ledger_client.now() + LEASE_MS
    end_grace(ledger_client)
    ledger_client.end_lease(worker)
    assert ledger_client.renew(other).reclaiming_is_due
    assert ledger_client.reclaim(other)[:2] == [1, 1]


async def test_dead_workers_of_which_nobody_was_told_are_found_by_the_check_of_leases(
    ledger_client: LedgerClient,
) -> None:
    """A fail-over may forget the reclaim mark."""
    dead, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.start(dead, "k")
    keys, client = ledger_client.ledger.keys, ledger_client.client
    client.zrem(keys.leases, dead, "")
    client.sadd(keys.key("dying"), dead)
    assert not ledger_client.renew(other).reclaiming_is_due
    ledger_client.ledger.fleet.correct_leases(client)
    assert ledger_client.renew(other).reclaiming_is_due
    assert ledger_client.reclaim(other)[1] == 1
    assert not ledger_client.renew(other).reclaiming_is_due
    ledger_client.ledger.fleet.correct_leases(client)
    assert not ledger_client.renew(other).reclaiming_is_due


async def test_a_grace_of_a_clock_that_was_set_back_since_protects_nobody(ledger_client: LedgerClient) -> None:
    dead, other = await ledger_client.hire(), await ledger_client.hire()
    ledger_client.client.zadd(ledger_client.ledger.keys.leases, {b"\1grace": ledger_client.now() + 86_400_000 - 1e15})
    ledger_client.end_lease(dead)
    assert ledger_client.renew(other).reclaiming_is_due
    assert ledger_client.reclaim(other)[0] == 1


def end_grace(ledger_client: LedgerClient) -> None:
    ledger_client.client.zadd(ledger_client.ledger.keys.leases, {b"\1grace": -1e15})
    ledger_client.forget_reclaimer()


def age_gaps(ledger_client: LedgerClient, ms: int) -> None:
    """The time of the last gaps, too, is that much longer ago."""
    fleet = ledger_client.ledger.keys.key("fleet")
    ledger_client.client.hincrby(fleet, "gaps-since", -ms)
    ledger_client.client.zincrby(ledger_client.ledger.keys.leases, -ms, b"\1grace")


# Many die at once


async def test_one_survivor_of_three_hundred_declares_and_recovers_them_all_in_bounded_steps(
    ledger_client: LedgerClient,
) -> None:
    survivor = await ledger_client.hire()
    dead = [await ledger_client.hire() for _ in range(300)]
    await ledger_client.add(*(f"k{n}" for n in range(300)))
    for worker in dead:
        assert len(await ledger_client.take(worker, 1)) == 1
        ledger_client.end_lease(worker)
    assert ledger_client.renew(survivor).reclaiming_is_due
    steps = [ledger_client.reclaim(survivor, thorough=False)]
    while steps[-1][4]:
        steps.append(ledger_client.reclaim(survivor, thorough=False))
    assert sum(step[0] for step in steps) == sum(step[1] for step in steps) == 300
    assert max(step[0] for step in steps) <= 5
    assert len(steps) <= 80
    assert len(await ledger_client.take(survivor, 300)) == 300
    ledger_client.checked_state()


def commands(ledger_client: LedgerClient) -> int:
    """How many the server has run so far, those inside of scripts included."""
    return sum(row["calls"] for row in ledger_client.client.info("commandstats").values())


async def test_every_step_of_reclaiming_is_short_however_much_the_dead_had(ledger_client: LedgerClient) -> None:
    """Many functions, many tasks, suspects among them."""
    functions = [f"function {n}" for n in range(700)]
    await ledger_client.add(*(f"k{n}" for n in range(200)))
    for losses in range(3):
        dead = [await ledger_client.hire(*functions) for _ in range(20)]
        for worker in dead:
            await ledger_client.take(worker, 10)
            ledger_client.end_lease(worker)
        left, declared = 1, 0
        while left:
            before = commands(ledger_client)
            worked, _, _, _, left = ledger_client.reclaim(thorough=False)
            declared += worked
            assert commands(ledger_client) - before < 800
        assert declared == 20
        stored_state = ledger_client.checked_state()
        assert {task.losses for task in stored_state.tasks.values()} >= {losses + 1}
        assert not stored_state.task_workers
        assert not stored_state.dying


async def test_of_hundreds_that_hear_of_the_dead_one_reclaims_and_another_if_it_does_not(
    ledger_client: LedgerClient,
) -> None:
    workers = [await ledger_client.hire() for _ in range(200)]
    dead = await ledger_client.hire()
    ledger_client.end_lease(dead)
    assert_one_reclaims(ledger_client, workers)
    # It died, too, or was held up.
    ledger_client.forget_reclaimer()
    assert_one_reclaims(ledger_client, workers)


def assert_one_reclaims(ledger_client: LedgerClient, workers: list[str]) -> None:
    """The server asks one worker, and another for each second in which nobody has reclaimed."""
    begin = ledger_client.now()
    asked = sum(ledger_client.renew(worker).reclaiming_is_due for worker in workers)
    seconds = (ledger_client.now() - begin) // 1000
    assert 1 <= asked <= 1 + seconds


# Something else is gone


async def test_the_group_is_made_again_and_nothing_starts_twice(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    back = await ledger_client.start(worker, "put back")
    await ledger_client.settle(requeue("put back", back.epoch))
    await ledger_client.add("running", "delivered", "waiting")
    put_back, running = await ledger_client.take(worker, 2)
    entries = ledger_client.read(worker, 1)
    for stream in (ledger_client.ledger.keys.stream, ledger_client.ledger.keys.front):
        ledger_client.client.xgroup_destroy(stream, GROUP)

    taken = await ledger_client.take(other)
    assert [run.key for run in taken] == ["delivered", "waiting"]
    assert await ledger_client.claim(worker, entries) == []
    ledger_client.checked_state()
    assert await ledger_client.settle(completed(running), completed(put_back)) == [DONE, DONE]
    assert await ledger_client.settle(*(completed(run) for run in taken)) == [DONE, DONE]
    assert not ledger_client.checked_state().entries


async def test_the_owner_takes_its_own_runs_up_again_when_the_group_is_made_again(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    ledger_client.client.xgroup_destroy(ledger_client.ledger.keys.stream, GROUP)
    (again,) = await ledger_client.take(worker)
    assert again == run
    assert await ledger_client.settle(completed(run)) == [DONE]


@pytest.mark.parametrize("found_by", ["taking", "sweeping"])
async def test_a_run_whose_worker_died_after_the_group_was_lost_is_found(
    ledger_client: LedgerClient, found_by: str
) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("k")
    await ledger_client.take(worker)
    ledger_client.client.xgroup_destroy(ledger_client.ledger.keys.stream, GROUP)
    ledger_client.bury(worker)
    if found_by == "sweeping":
        assert ledger_client.sweep() == 1
    else:
        assert await ledger_client.take(other) == []
        ledger_client.reclaim()
    assert [run.key for run in await ledger_client.take(other)] == ["k"]
    ledger_client.checked_state()


async def test_a_worker_goes_on_when_the_server_comes_back_empty(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    ledger_client.client.flushdb()

    assert await ledger_client.settle(completed(run)) == [LOST]
    assert await ledger_client.ledger.tasks.progress([ProgressChange("k", run.epoch, add=1)]) == [Unwritten.LOST]
    assert await ledger_client.ledger.deliveries.take(worker, '"w"', 1) is None
    renewal = ledger_client.renew(worker)
    assert (renewal.lost, renewal.is_registered) == (False, False)
    await ledger_client.ledger.fleet.register(worker, LEASE_MS, ["f"])
    assert ledger_client.renew(worker).is_registered
    again = await ledger_client.start(worker, "k")
    assert again.epoch > run.epoch
    assert await ledger_client.settle(completed(run)) == [LOST]
    assert await ledger_client.settle(completed(again)) == [DONE]
    ledger_client.checked_state()


async def test_work_added_to_an_empty_server_is_delivered_to_whoever_registers_later(
    ledger_client: LedgerClient,
) -> None:
    await ledger_client.add("before anybody was there")
    worker = await ledger_client.hire()
    assert [run.key for run in await ledger_client.take(worker)] == ["before anybody was there"]


async def test_flushed_scripts_are_loaded_again_by_every_verb(ledger_client: LedgerClient) -> None:
    async def flushed() -> LedgerClient:
        ledger_client.client.script_flush()
        return ledger_client

    worker = await (await flushed()).hire()
    await (await flushed()).add("a", "b", "c")
    await (await flushed()).ledger.tasks.stage()
    a, b = await (await flushed()).take(worker, 2)
    await (await flushed()).claim(worker, [])
    await (await flushed()).ledger.tasks.progress([ProgressChange("a", a.epoch, add=1)])
    assert await (await flushed()).acquire("a", a.epoch, [("L", 1)]) == 1
    assert await (await flushed()).settle(completed(a)) == [DONE]
    assert not (await flushed()).renew(worker).lost
    assert await (await flushed()).ledger.tasks.cancel("b") == 2
    assert (await (await flushed()).ledger.tasks.get("a")).finished is not None
    assert (await (await flushed()).ledger.queries.census()).unfinished == 2
    assert len([p async for p in (await flushed()).ledger.queries.all()]) == 1
    assert len(await (await flushed()).ledger.fleet.workers()) == 1
    assert await (await flushed()).ledger.deliveries.unknown_deliveries(worker, [b.epoch], []) == []
    assert (await flushed()).reclaim() == [0, 0, 0, 0, 0]
    assert (await flushed()).sweep() == 0
    assert await (await flushed()).ledger.tasks.clear() == 1
    assert await (await flushed()).ledger.fleet.leave(worker) is True
    assert await ledger_client.settle(completed(b)) == [DONE]


# The sweep mends what no ordinary path leaves behind


@pytest.mark.parametrize("location", ["schedule", "stream", "front", "delivered", "waiters"])
async def test_a_task_that_is_nowhere_is_found_by_the_sweep(ledger_client: LedgerClient, location: str) -> None:
    keys, worker = ledger_client.ledger.keys, await ledger_client.hire()
    await ledger_client.add("k", due_ms=ledger_client.later() if location == "schedule" else 0)
    if location == "schedule":
        ledger_client.client.zrem(keys.schedule, "k")
    elif location == "waiters":
        (run,) = await ledger_client.take(worker)
        holder = await ledger_client.start(worker, "holder")
        await ledger_client.acquire("holder", holder.epoch, [("L", 1)])
        await ledger_client.acquire("k", run.epoch, [("L", 1)])
        ledger_client.client.delete(keys.key("waiters:=L"))
    elif location == "delivered":
        (entry,) = ledger_client.read(worker)
        ledger_client.client.xack(keys.stream, GROUP, entry.id)
    else:
        if location == "front":
            (run,) = await ledger_client.take(worker)
            await ledger_client.settle(requeue("k", run.epoch))
        for stream in (keys.stream, keys.front):
            for id, _ in ledger_client.client.xrange(stream):
                ledger_client.client.xdel(stream, id)
    assert await ledger_client.take(worker) == []
    assert ledger_client.sweep() == 1
    assert [run.key for run in await ledger_client.take(worker)] == ["k"]
    ledger_client.checked_state()


async def test_the_sweep_changes_nothing_that_is_well(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("later", due_ms=ledger_client.later())
    await ledger_client.add(*(f"t{n}" for n in range(6)))
    runs = await ledger_client.take(worker, 4)
    ledger_client.read(worker, 1)
    for run in runs[:3]:
        await ledger_client.acquire(run.key, run.epoch, [("L", 1)])
    await ledger_client.settle(completed(runs[0]))
    before = ledger_client.checked_state()
    for _ in range(3):
        assert ledger_client.sweep() == 0
    after = ledger_client.checked_state()
    after.finished_ttl = before.finished_ttl
    assert after == before


async def test_sweeps_are_as_rare_as_asked_and_see_everything_in_the_end(ledger_client: LedgerClient) -> None:
    for batch in range(4):
        await ledger_client.add(*(f"{batch} {n}" for n in range(500)))
    assert ledger_client.ledger.fleet.sweep(ledger_client.client, 100, 60_000)[0] > 0
    assert ledger_client.ledger.fleet.sweep(ledger_client.client, 100, 60_000) == [0, 0]
    ledger_client.client.xtrim(ledger_client.ledger.keys.stream, 0)
    mended = sum(ledger_client.ledger.fleet.sweep(ledger_client.client, 100, 0)[1] for _ in range(60))
    assert mended == 2000
    ledger_client.checked_state()
