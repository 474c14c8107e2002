"""What happens to work when a worker, a consumer group, a script or all data is gone."""

from __future__ import annotations

import pytest

from docket.ledger import Answer, ProgressChange, Unwritten, hand_back
from docket.ledger.queries import Query, find_all
from docket.storage.records import read_task

from .books import GROUP
from .desk import LATE_MS, LEASE_MS, Desk, completed, order

DONE, LOST = Answer.DONE, Answer.LOST


# A worker is lost


async def test_what_a_dead_worker_had_starts_elsewhere_and_nothing_of_it_stays(desk: Desk) -> None:
    worker, other = await desk.hire("f", "only mine"), await desk.hire()
    await desk.add("claimed", "delivered", "waiting")
    await desk.take(worker, 1)
    desk.read(worker, 1)
    desk.end_lease(worker)
    assert desk.reclaim() == [1, 2, 0, 0, 0]
    books = desk.sound_books()
    assert worker in books.lost
    assert books.tasks["claimed"].losses == 1
    assert books.tasks["delivered"].losses == 0
    assert [run.key for run in await desk.take(other)] == ["claimed", "delivered", "waiting"]
    assert await desk.ledger.roster("only mine") == []
    assert [row.id for row in await desk.ledger.roster()] == [other]


async def test_a_lease_that_has_not_ended_is_left_alone(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.start(worker, "k")
    before = desk.books()
    for _ in range(3):
        assert desk.reclaim() == [0, 0, 0, 0, 0]
    assert desk.books() == before


async def test_whoever_renews_hears_of_a_lease_that_has_ended(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    await desk.start(worker, "k")
    assert not desk.renew(other).reclaiming_is_due
    desk.end_lease(worker)
    assert desk.renew(other).reclaiming_is_due
    assert desk.reclaim(thorough=False) == [1, 1, 0, 0, 0]
    assert not desk.renew(other).reclaiming_is_due


async def test_whoever_renews_hears_of_a_dead_worker_that_is_only_half_recovered(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    await desk.add(*(f"k{n}" for n in range(30)))
    await desk.take(worker, 30)
    desk.end_lease(worker)
    assert desk.reclaim(thorough=False) == [1, 20, 0, 0, 1]
    # Whoever made that step is at it; if it died, another hears of it.
    assert not desk.renew(other).reclaiming_is_due
    desk.forget_reclaimer()
    assert desk.renew(other).reclaiming_is_due
    assert desk.reclaim(thorough=False) == [0, 10, 0, 0, 0]
    assert not desk.renew(other).reclaiming_is_due


async def test_what_a_worker_leaves_behind_is_told_to_whoever_renews_next(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    await desk.add("k")
    desk.read(worker)
    assert await desk.ledger.leave(worker) is True
    assert desk.renew(other).reclaiming_is_due
    assert desk.reclaim(thorough=False)[:2] == [0, 1]
    desk.sound_books()


async def test_what_a_lost_worker_was_given_after_its_end_is_told_to_whoever_renews_next(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    desk.bury(worker)
    await desk.add("k")
    assert await desk.claim(worker, desk.read(worker)) is None
    assert desk.renew(other).reclaiming_is_due
    assert desk.reclaim(thorough=False)[:2] == [0, 1]
    assert [run.key for run in await desk.take(other)] == ["k"]


@pytest.mark.parametrize("end", ["dies", "leaves"])
async def test_after_a_worker_is_gone_the_others_look_once_more_for_what_its_last_read_brought(
    desk: Desk, end: str
) -> None:
    worker, other = await desk.hire(), await desk.hire()
    if end == "dies":
        desk.bury(worker)
    else:
        await desk.ledger.leave(worker)
    await desk.add("k")
    desk.read(worker)
    look_at = desk.books().look_at
    assert look_at is not None
    assert desk.now() < look_at < desk.now() + 10_000
    desk.client.zadd(desk.ledger.keys.leases, {"": 1}, xx=True)
    desk.client.hincrby(desk.ledger.keys.key("fleet"), "gone-at", -10_000)
    assert desk.renew(other).reclaiming_is_due
    assert desk.reclaim(thorough=False)[:2] == [0, 1]
    assert desk.sound_books().look_at is None


async def test_idle_workers_are_shown_no_orders_and_hear_of_them_when_they_run_something(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    await desk.ledger.cancel("k")
    assert desk.ledger.renew(desk.client, worker, LEASE_MS, LATE_MS, busy=False).orders == []
    assert desk.renew(worker).orders == [(run.epoch, "k")]


async def test_a_thousand_deliveries_are_recovered_in_steps_of_twenty(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    keys = [f"k{n}" for n in range(1000)]
    for start in (0, 500):
        await desk.add(*keys[start : start + 500])
        assert len(await desk.take(worker, 500)) == 500
    desk.end_lease(worker)
    steps = [desk.reclaim()]
    while steps[-1][4]:
        desk.sound_books()
        steps.append(desk.reclaim())
    assert max(step[1] for step in steps) == 20
    assert sum(step[1] for step in steps) == 1000
    taken = [run.key for _ in range(2) for run in await desk.take(other, 500)]
    assert taken == keys


async def test_an_orphan_behind_thousands_of_live_deliveries_is_found_at_once(desk: Desk) -> None:
    busy, dead = await desk.hire(), await desk.hire()
    for batch in range(10):
        await desk.ledger.enqueue([order(f"{batch} {n}", fresh=True) for n in range(500)])
        await desk.take(busy, 500)
    await desk.add("orphan")
    assert [run.key for run in await desk.take(dead)] == ["orphan"]
    desk.end_lease(dead)
    assert desk.reclaim()[:2] == [1, 1]
    assert [run.key for run in await desk.take(busy, 1)] == ["orphan"]


async def test_workers_that_come_and_go_leave_nothing(desk: Desk) -> None:
    await desk.add("k")
    for n in range(40):
        worker = await desk.hire("f", f"only {n}")
        runs = await desk.take(worker)
        if n % 2:
            desk.bury(worker)
            desk.reclaim()
        else:
            await desk.settle(*(hand_back(run.key, run.epoch) for run in runs))
            assert await desk.ledger.leave(worker) is False
    books = desk.sound_books()
    assert not books.consumers
    assert not books.leases
    assert not books.task_workers
    assert set(books.finished) | set(books.tasks) == {"k"}


async def test_a_worker_that_leaves_with_deliveries_gives_them_back_uncounted(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    await desk.add("a", "b")
    desk.read(worker)
    assert await desk.ledger.leave(worker) is True
    assert desk.renew(worker).lost
    assert desk.reclaim()[:2] == [0, 2]
    runs = await desk.take(other)
    assert [(run.key, read_task(run.record).losses) for run in runs] == [("a", 0), ("b", 0)]
    assert desk.sound_books().consumers == {other}


async def test_a_late_renewal_answers_lost_and_brings_nothing_back(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    desk.bury(worker)
    before = desk.books()
    assert desk.renew(worker).lost
    assert await desk.settle(completed(run)) == [LOST]
    assert desk.books() == before


# The server stalled, or its clock jumped


async def test_after_a_stall_every_owner_gets_the_chance_to_renew(desk: Desk) -> None:
    alive, dead, first = await desk.hire(), await desk.hire(), await desk.hire()
    await desk.add("a", "b")
    (a,) = await desk.take(alive, 1)
    await desk.take(dead, 1)

    # Nobody could renew for three leases, and all leases ended meanwhile.
    desk.stall(3 * LEASE_MS)
    assert not desk.renew(first).reclaiming_is_due
    assert desk.reclaim(first) == [0, 0, 0, 0, 0]
    assert not desk.renew(alive).lost

    end_grace(desk)
    assert desk.renew(first).reclaiming_is_due
    assert desk.reclaim(first)[:2] == [1, 1]
    assert await desk.settle(completed(a)) == [DONE]
    assert list(desk.sound_books().tasks) == ["b"]


async def test_a_worker_that_was_held_up_between_hearing_of_the_dead_and_reclaiming_declares_nobody(desk: Desk) -> None:
    alive, dead = await desk.hire(), await desk.hire()
    desk.end_lease(dead)
    assert desk.renew(alive).reclaiming_is_due
    desk.stall(3 * LEASE_MS)
    assert desk.reclaim(alive)[0] == 0


async def test_a_stall_that_is_shorter_than_the_lease_makes_nobody_look_for_the_dead(desk: Desk) -> None:
    """However many workers renew late at once."""
    workers = [await desk.hire() for _ in range(300)]
    desk.stall(LATE_MS + 1)
    answers = [desk.renew(worker) for worker in workers]
    assert not any(answer.reclaiming_is_due or answer.lost for answer in answers)
    assert set(desk.sound_books().leases) == set(workers)


async def test_a_worker_that_always_renews_late_finds_its_dead_in_the_end(desk: Desk) -> None:
    dead, alone = await desk.hire(), await desk.hire()
    await desk.start(dead, "k")
    desk.end_lease(dead)
    renewals, due = 0, False
    while not due:
        desk.stall(LATE_MS + 1)
        age_gaps(desk, LATE_MS + 1)
        due = desk.renew(alone).reclaiming_is_due
        renewals += 1
        assert renewals < 20, "within a few leases"
    assert renewals >= 3, "three leases are given to come back"
    assert desk.reclaim(alone)[:2] == [1, 1]


async def test_whoever_starts_after_everybody_was_gone_for_an_hour_finds_the_dead(desk: Desk) -> None:
    dead = await desk.hire()
    await desk.start(dead, "k")
    desk.stall(3_600_000)
    first = await desk.hire()
    # They may be cut off only, and be back in a moment.
    assert not desk.renew(first).reclaiming_is_due
    end_grace(desk)
    assert desk.renew(first).reclaiming_is_due
    assert desk.reclaim(first)[:2] == [1, 1]


async def test_a_clock_that_was_set_back_leaves_no_lease_for_ever(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    await desk.start(worker, "k")
    desk.stall(-86_400_000)
    assert not desk.renew(other).reclaiming_is_due
    assert desk.books().leases[worker] > desk.now() + LEASE_MS
    desk.ledger.inspect(desk.client)
    assert desk.books().leases[worker] <= desk.now() + LEASE_MS
    end_grace(desk)
    desk.end_lease(worker)
    assert desk.renew(other).reclaiming_is_due
    assert desk.reclaim(other)[:2] == [1, 1]


async def test_a_grace_of_a_clock_that_was_set_back_since_protects_nobody(desk: Desk) -> None:
    dead, other = await desk.hire(), await desk.hire()
    desk.client.zadd(desk.ledger.keys.leases, {b"\1grace": desk.now() + 86_400_000 - 1e15})
    desk.end_lease(dead)
    assert desk.renew(other).reclaiming_is_due
    assert desk.reclaim(other)[0] == 1


def end_grace(desk: Desk) -> None:
    desk.client.zadd(desk.ledger.keys.leases, {b"\1grace": -1e15})
    desk.forget_reclaimer()


def age_gaps(desk: Desk, ms: int) -> None:
    """The time of the last gaps, too, is that much longer ago."""
    fleet = desk.ledger.keys.key("fleet")
    desk.client.hincrby(fleet, "gaps-since", -ms)
    desk.client.zincrby(desk.ledger.keys.leases, -ms, b"\1grace")


# Many die at once


async def test_one_survivor_of_three_hundred_declares_and_recovers_them_all_in_bounded_steps(desk: Desk) -> None:
    survivor = await desk.hire()
    dead = [await desk.hire() for _ in range(300)]
    await desk.add(*(f"k{n}" for n in range(300)))
    for worker in dead:
        assert len(await desk.take(worker, 1)) == 1
        desk.end_lease(worker)
    assert desk.renew(survivor).reclaiming_is_due
    steps = [desk.reclaim(survivor, thorough=False)]
    while steps[-1][4]:
        steps.append(desk.reclaim(survivor, thorough=False))
    assert sum(step[0] for step in steps) == sum(step[1] for step in steps) == 300
    assert max(step[0] for step in steps) <= 5
    assert len(steps) <= 80
    assert len(await desk.take(survivor, 300)) == 300
    desk.sound_books()


def commands(desk: Desk) -> int:
    """How many the server has run so far, those inside of scripts included."""
    return sum(row["calls"] for row in desk.client.info("commandstats").values())


async def test_every_step_of_reclaiming_is_short_however_much_the_dead_had(desk: Desk) -> None:
    """Many functions, many tasks, suspects among them."""
    functions = [f"function {n}" for n in range(700)]
    await desk.add(*(f"k{n}" for n in range(200)))
    for losses in range(3):
        dead = [await desk.hire(*functions) for _ in range(20)]
        for worker in dead:
            await desk.take(worker, 10)
            desk.end_lease(worker)
        left, declared = 1, 0
        while left:
            before = commands(desk)
            worked, _, _, _, left = desk.reclaim(thorough=False)
            declared += worked
            assert commands(desk) - before < 800
        assert declared == 20
        books = desk.sound_books()
        assert {task.losses for task in books.tasks.values()} >= {losses + 1}
        assert not books.task_workers
        assert not books.dying


async def test_of_hundreds_that_hear_of_the_dead_one_reclaims_and_another_if_it_does_not(desk: Desk) -> None:
    workers = [await desk.hire() for _ in range(200)]
    dead = await desk.hire()
    desk.end_lease(dead)
    assert sum(desk.renew(worker).reclaiming_is_due for worker in workers) == 1
    # It died, too, or was held up.
    desk.forget_reclaimer()
    assert sum(desk.renew(worker).reclaiming_is_due for worker in workers) == 1


# Something else is gone


async def test_the_group_is_made_anew_and_nothing_starts_twice(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    back = await desk.start(worker, "put back")
    await desk.settle(hand_back("put back", back.epoch))
    await desk.add("running", "delivered", "waiting")
    put_back, running = await desk.take(worker, 2)
    entries = desk.read(worker, 1)
    for stream in (desk.ledger.keys.stream, desk.ledger.keys.front):
        desk.client.xgroup_destroy(stream, GROUP)

    taken = await desk.take(other)
    assert [run.key for run in taken] == ["delivered", "waiting"]
    assert await desk.claim(worker, entries) == []
    desk.sound_books()
    assert await desk.settle(completed(running), completed(put_back)) == [DONE, DONE]
    assert await desk.settle(*(completed(run) for run in taken)) == [DONE, DONE]
    assert not desk.sound_books().entries


async def test_the_owner_takes_its_own_runs_up_again_when_the_group_is_made_anew(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    desk.client.xgroup_destroy(desk.ledger.keys.stream, GROUP)
    (again,) = await desk.take(worker)
    assert again == run
    assert await desk.settle(completed(run)) == [DONE]


@pytest.mark.parametrize("found_by", ["taking", "sweeping"])
async def test_a_run_whose_worker_died_after_the_group_was_lost_is_found(desk: Desk, found_by: str) -> None:
    worker, other = await desk.hire(), await desk.hire()
    await desk.add("k")
    await desk.take(worker)
    desk.client.xgroup_destroy(desk.ledger.keys.stream, GROUP)
    desk.bury(worker)
    if found_by == "sweeping":
        assert desk.sweep() == 1
    else:
        assert await desk.take(other) == []
        desk.reclaim()
    assert [run.key for run in await desk.take(other)] == ["k"]
    desk.sound_books()


async def test_a_worker_goes_on_when_the_server_comes_back_empty(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    desk.client.flushdb()

    assert await desk.settle(completed(run)) == [LOST]
    assert await desk.ledger.progress([ProgressChange("k", run.epoch, add=1)]) == [Unwritten.LOST]
    assert await desk.ledger.take(worker, '"w"', 1) is None
    renewal = desk.renew(worker)
    assert (renewal.lost, renewal.on_roster) == (False, False)
    await desk.ledger.register(worker, LEASE_MS, ["f"])
    assert desk.renew(worker).on_roster
    again = await desk.start(worker, "k")
    assert again.epoch > run.epoch
    assert await desk.settle(completed(run)) == [LOST]
    assert await desk.settle(completed(again)) == [DONE]
    desk.sound_books()


async def test_work_added_to_an_empty_server_is_delivered_to_whoever_registers_later(desk: Desk) -> None:
    await desk.add("before anybody was there")
    worker = await desk.hire()
    assert [run.key for run in await desk.take(worker)] == ["before anybody was there"]


async def test_flushed_scripts_are_loaded_again_by_every_verb(desk: Desk) -> None:
    async def flushed() -> Desk:
        desk.client.script_flush()
        return desk

    worker = await (await flushed()).hire()
    await (await flushed()).add("a", "b", "c")
    await (await flushed()).ledger.stage()
    a, b = await (await flushed()).take(worker, 2)
    await (await flushed()).claim(worker, [])
    await (await flushed()).ledger.progress([ProgressChange("a", a.epoch, add=1)])
    assert await (await flushed()).acquire("a", a.epoch, [("L", 1)]) == 1
    assert await (await flushed()).settle(completed(a)) == [DONE]
    assert not (await flushed()).renew(worker).lost
    assert await (await flushed()).ledger.cancel("b") == 2
    assert (await (await flushed()).ledger.get("a")).finished is not None
    assert (await (await flushed()).ledger.census()).unfinished == 2
    assert len([p async for p in find_all((await flushed()).ledger, Query())]) == 1
    assert len(await (await flushed()).ledger.roster()) == 1
    assert await (await flushed()).ledger.unknown_deliveries(worker, [b.epoch], []) == []
    assert (await flushed()).reclaim() == [0, 0, 0, 0, 0]
    assert (await flushed()).sweep() == 0
    assert await (await flushed()).ledger.clear() == 1
    assert await (await flushed()).ledger.leave(worker) is True
    assert await desk.settle(completed(b)) == [DONE]


# The sweep mends what no ordinary path leaves behind


@pytest.mark.parametrize("place", ["queue", "stream", "front", "delivered", "line"])
async def test_a_task_that_is_nowhere_is_found_by_the_sweep(desk: Desk, place: str) -> None:
    keys, worker = desk.ledger.keys, await desk.hire()
    await desk.add("k", due_ms=desk.later() if place == "queue" else 0)
    if place == "queue":
        desk.client.zrem(keys.queue, "k")
    elif place == "line":
        (run,) = await desk.take(worker)
        holder = await desk.start(worker, "holder")
        await desk.acquire("holder", holder.epoch, [("L", 1)])
        await desk.acquire("k", run.epoch, [("L", 1)])
        desk.client.delete(keys.key("line:=L"))
    elif place == "delivered":
        (entry,) = desk.read(worker)
        desk.client.xack(keys.stream, GROUP, entry.id)
    else:
        if place == "front":
            (run,) = await desk.take(worker)
            await desk.settle(hand_back("k", run.epoch))
        for stream in (keys.stream, keys.front):
            for id, _ in desk.client.xrange(stream):
                desk.client.xdel(stream, id)
    assert await desk.take(worker) == []
    assert desk.sweep() == 1
    assert [run.key for run in await desk.take(worker)] == ["k"]
    desk.sound_books()


async def test_the_sweep_changes_nothing_that_is_well(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("later", due_ms=desk.later())
    await desk.add(*(f"t{n}" for n in range(6)))
    runs = await desk.take(worker, 4)
    desk.read(worker, 1)
    for run in runs[:3]:
        await desk.acquire(run.key, run.epoch, [("L", 1)])
    await desk.settle(completed(runs[0]))
    before = desk.sound_books()
    for _ in range(3):
        assert desk.sweep() == 0
    after = desk.sound_books()
    after.finished_ttl = before.finished_ttl
    assert after == before


async def test_sweeps_are_as_rare_as_asked_and_see_everything_in_the_end(desk: Desk) -> None:
    for batch in range(4):
        await desk.add(*(f"{batch} {n}" for n in range(500)))
    assert desk.ledger.sweep(desk.client, 100, 60_000)[0] > 0
    assert desk.ledger.sweep(desk.client, 100, 60_000) == [0, 0]
    desk.client.xtrim(desk.ledger.keys.stream, 0)
    mended = sum(desk.ledger.sweep(desk.client, 100, 0)[1] for _ in range(60))
    assert mended == 2000
    desk.sound_books()
