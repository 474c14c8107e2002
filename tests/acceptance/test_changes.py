"""Changes of operators to waiting tasks: run now, skip, another time, cancel all that match."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from docket import Cron, Docket, EmptyFilter, ExecutionState, Perpetual, Worker
from docket.inspection.filters import TaskFilter, read_filter
from docket.testing import Clock
from tests.running import at_work
from tests.waiting import eventually

HOUR = timedelta(hours=1)


async def note(number: int) -> int:
    return number


async def every_hour(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None: ...


async def at_three(cron: Cron = Cron("0 3 * * *")) -> None: ...


async def keys(docket: Docket) -> set[str]:
    snapshot = await docket.snapshot()
    return {execution.key for execution in [*snapshot.future, *snapshot.running]}


async def test_a_scheduled_task_runs_now(docket: Docket) -> None:
    execution = await docket.add(note, when=docket.now() + HOUR, key="later")(7)
    assert await docket.run_now("later")
    async with Worker(docket) as worker, at_work(worker):
        assert await execution.get_result() == 7
    assert not await docket.run_now("later"), "it has ended"
    assert not await docket.run_now("nobody")


async def test_an_idle_worker_gets_the_task_at_once(docket: Docket) -> None:
    async with Worker(docket) as worker, at_work(worker):
        for n in range(5):
            execution = await docket.add(note, when=docket.now() + HOUR)(n)
            assert await docket.run_now(execution.key)
            assert await execution.get_result() == n


async def test_a_task_that_is_not_in_the_schedule_is_left_alone(docket: Docket) -> None:
    await docket.add(note, key="ready")(1)
    assert not await docket.run_now("ready")
    await docket.pause(note)
    begun, go = asyncio.Event(), asyncio.Event()

    async def long() -> None:
        begun.set()
        await go.wait()

    await docket.add(long, key="running")()
    async with Worker(docket) as worker, at_work(worker):
        await begun.wait()
        assert not await docket.run_now("running")
        assert not await docket.reschedule("running", docket.now() + HOUR)
        go.set()


async def test_a_button_that_is_pressed_twice_runs_the_task_once(docket: Docket) -> None:
    due = docket.now() + HOUR
    await docket.add(note, when=due, key="later")(1)
    assert not await docket.run_now("later", due=due + HOUR)
    assert await docket.reschedule("later", due + HOUR, due=due)
    assert not await docket.reschedule("later", due + 2 * HOUR, due=due)
    assert await docket.run_now("later", due=due + HOUR)
    assert not await docket.run_now("later", due=due + HOUR)


async def test_another_time_is_kept_whatever_it_is(docket: Docket, clock: Clock) -> None:
    due = docket.now() + HOUR
    execution = await docket.add(note, when=due, key="later")(1)
    assert await docket.reschedule("later", due - HOUR / 2)
    async with Worker(docket) as worker, at_work(worker):
        await clock.advance(HOUR / 2)
        assert await execution.get_result() == 1
    again = await docket.add(note, when=due, key="past")(2)
    assert await docket.reschedule("past", due - 5 * HOUR)
    await again.sync()
    assert again.state is ExecutionState.QUEUED


async def test_a_held_task_stays_held_when_it_is_to_run_now(docket: Docket) -> None:
    await docket.pause(note)
    execution = await docket.add(note, when=docket.now() + HOUR, key="later")(1)
    assert await docket.run_now("later")
    async with Worker(docket) as worker, at_work(worker):

        async def is_held() -> bool:
            await execution.sync()
            return execution.is_held

        await eventually(is_held, "the task is held")
        await docket.resume(note)
        assert await execution.get_result() == 1


async def test_the_next_run_of_a_chain_is_skipped(docket: Docket, clock: Clock) -> None:
    for function in (every_hour, at_three):
        docket.register(function)
    async with Worker(docket) as worker, at_work(worker):

        async def both_wait() -> bool:
            found = {one.key: one.state for one in (await docket.snapshot()).future}
            return all(found.get(key) is ExecutionState.SCHEDULED for key in ("every_hour", "at_three"))

        await eventually(both_wait, "both chains wait for their next run")
        [hourly, daily] = [await docket.get_execution(key) for key in ("every_hour", "at_three")]
        assert hourly is not None
        assert daily is not None
        moved = await docket.skip("every_hour")
        assert moved == hourly.when + HOUR
        moved = await docket.skip("at_three", due=daily.when)
        assert moved == daily.when + timedelta(days=1)
        assert await docket.skip("at_three", due=daily.when) is None, "it was skipped before"
        await daily.sync()
        assert daily.when == moved


async def test_a_task_without_a_chain_cannot_be_skipped(docket: Docket) -> None:
    await docket.add(note, when=docket.now() + HOUR, key="later")(1)
    with pytest.raises(ValueError, match="note"):
        await docket.skip("later")
    assert await docket.skip("nobody") is None


async def test_a_cron_task_that_runs_now_also_runs_at_its_next_time(docket: Docket, clock: Clock) -> None:
    docket.register(at_three)
    async with Worker(docket) as worker, at_work(worker):

        async def scheduled_for() -> object:
            execution = await docket.get_execution("at_three")
            return execution is not None and execution.state is ExecutionState.SCHEDULED and execution.when

        before = await eventually(scheduled_for, "the first run is scheduled")
        assert await docket.run_now("at_three")

        async def has_run() -> bool:
            return (await docket.stats("at_three")).total.succeeded == 1

        await eventually(has_run, "it runs now")
        assert await eventually(scheduled_for, "its next run is scheduled") == before


async def test_all_tasks_that_match_are_cancelled_and_no_others(docket: Docket) -> None:
    now = docket.now()
    await docket.add_many(docket.call(note, key=f"ready-{n:04}")(n) for n in range(1_200))
    await docket.add_many(docket.call(note, when=now + HOUR, key=f"later-{n:04}")(n) for n in range(1_200))
    report = await docket.cancel_matching(read_filter("prefix:ready-0"))
    assert (report.cancelled, report.skipped, report.cursor) == (1_000, 0, None)
    assert len(await keys(docket)) == 1_400
    report = await docket.cancel_matching(read_filter("state:scheduled contains:9"))
    assert report.cancelled == len([n for n in range(1_200) if "9" in f"{n:04}"])
    with pytest.raises(EmptyFilter):
        await docket.cancel_matching(TaskFilter())
    await docket.cancel_matching(TaskFilter(), everything=True)
    assert await keys(docket) == set()


async def test_a_batch_that_is_interrupted_goes_on_at_its_cursor(docket: Docket) -> None:
    await docket.add_many(docket.call(note, key=f"ready-{n:04}")(n) for n in range(1_500))
    report = await docket.cancel_matching(read_filter("function:note"), patience=timedelta(0))
    cancelled, steps = report.cancelled, 1
    while report.cursor is not None:
        report = await docket.cancel_matching(read_filter("function:note"), patience=timedelta(0), cursor=report.cursor)
        cancelled, steps = cancelled + report.cancelled, steps + 1
    assert cancelled == 1_500
    assert steps > 1


async def test_running_tasks_are_cancelled_only_if_asked(docket: Docket) -> None:
    begun = asyncio.Event()

    async def long() -> None:
        begun.set()
        await asyncio.Event().wait()

    execution = await docket.add(long, key="running")()
    async with Worker(docket) as worker, at_work(worker):
        await begun.wait()
        report = await docket.cancel_matching(read_filter("function:long"))
        assert (report.cancelled, report.requested) == (0, 0)
        report = await docket.cancel_matching(read_filter("function:long"), running=True)
        assert (report.cancelled, report.requested) == (0, 1)

        async def is_cancelled() -> bool:
            await execution.sync()
            return execution.state is ExecutionState.CANCELLED

        await eventually(is_cancelled, "the run is cancelled")


async def test_changes_have_an_entry_in_the_audit(docket: Docket) -> None:
    await docket.add(note, when=docket.now() + HOUR, key="later")(1)
    await docket.run_now("later")
    await docket.run_now("later")
    await docket.cancel_matching(read_filter("function:note"))
    found = [(entry.action, entry.about, entry.count, entry.outcome) for entry in (await docket.audit()).entries]
    assert found == [
        ("cancel_matching", "function:note", 1, "done"),
        ("run_now", "later", 0, "not scheduled"),
        ("run_now", "later", 1, "done"),
    ]
