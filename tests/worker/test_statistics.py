"""Every way in which a run or a task ends is counted, once."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from docket import (
    ConcurrencyLimit,
    Cooldown,
    CurrentExecution,
    Docket,
    EndingKind,
    Execution,
    ExecutionState,
    Perpetual,
    Retry,
    Stats,
    Timeout,
    Worker,
    sync,
)
from docket.ledger import Settlement
from docket.model.states import NO_MEASURES
from docket.testing import Clock
from docket.worker.running.settlement_writer import SettlementWriter
from tests.running import run_everything, running, worker_for
from tests.waiting import eventually, reaches, within


async def counts(docket: Docket, function: Any = None) -> dict[str, dict[str, int]]:
    stats = await docket.stats(function)
    return {one.function: {kind.value: number for kind, number in one.endings.items()} for one in stats.functions}


async def test_the_settlement_of_a_run_has_all_measures(docket: Docket, monkeypatch: pytest.MonkeyPatch) -> None:
    async def plain() -> None: ...

    settled: list[Settlement] = []
    submit = SettlementWriter.submit

    def note(self: SettlementWriter, settlement: Settlement, on_answer: Any) -> None:
        settled.append(settlement)
        submit(self, settlement, on_answer)

    monkeypatch.setattr(SettlementWriter, "submit", note)
    await docket.add(plain)()
    await run_everything(docket)
    assert [len(settlement.measures) for settlement in settled] == [len(NO_MEASURES)]


async def test_runs_that_succeed_and_fail(docket: Docket) -> None:
    async def plain() -> None: ...

    async def valued() -> int:
        return 1

    async def failing() -> None:
        raise ValueError("no")

    def in_a_thread() -> None: ...

    for function in (plain, plain, valued, failing, in_a_thread):
        await docket.add(function)()
    await run_everything(docket)
    assert await counts(docket) == {
        "plain": {"succeeded": 2},
        "valued": {"succeeded": 1},
        "failing": {"failed": 1},
        "in_a_thread": {"succeeded": 1},
    }
    stats = await docket.stats()
    assert (stats.total.ended, stats.total.succeeded, stats.total.failures) == (5, 4, 1)
    assert stats.total.run_time.count == stats.total.waiting_time.count == 5
    assert stats.total.succeeded_run_time.count == 4
    assert sum(period.counts.ended for period in stats.periods) == 5
    assert stats.of("never ran").ended == 0


async def test_attempts_that_are_retried_and_the_last_one(docket: Docket) -> None:
    async def twice(retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError("no")

    async def at_last(retry: Retry = Retry(attempts=3)) -> None:
        if retry.attempt < 3:
            raise ValueError("not yet")

    await docket.add(twice)()
    await docket.add(at_last)()
    await run_everything(docket)
    assert await counts(docket) == {
        "twice": {"retried": 1, "failed": 1},
        "at_last": {"retried": 2, "succeeded": 1},
    }


async def test_a_time_out_is_told_from_a_timeout_error_of_the_body(docket: Docket) -> None:
    async def too_long(timeout: Timeout = Timeout(timedelta(milliseconds=20))) -> None:
        await asyncio.sleep(60)

    async def raises(timeout: Timeout = Timeout(timedelta(minutes=5))) -> None:
        raise TimeoutError("of another server")

    for function in (too_long, raises):
        await docket.add(function)()
    await run_everything(docket)
    assert await counts(docket) == {"too_long": {"timed_out": 1}, "raises": {"failed": 1}}
    assert (await docket.stats(too_long)).total.failed == 1


async def test_runs_of_a_chain(docket: Docket) -> None:
    async def chain(step: int, perpetual: Perpetual = Perpetual()) -> None:
        if step == 2:
            perpetual.cancel()
        perpetual.perpetuate(step + 1)
        if step == 1:
            raise ValueError("once")

    await docket.add(chain)(0)
    await run_everything(docket)
    assert await counts(docket) == {"chain": {"succeeded": 2, "failed": 1}}


async def test_a_body_that_schedules_its_next_run(docket: Docket) -> None:
    async def again(number: int, execution: Execution = CurrentExecution()) -> None:
        if execution.attempt == 1 and number:
            execution.attempt = 2
            await execution.schedule()

    await docket.add(again)(1)
    await run_everything(docket)
    assert await counts(docket) == {"again": {"succeeded": 2}}


async def test_cancelled_waiting_running_struck_and_dropped_tasks(docket: Docket, worker: Worker) -> None:
    async def long() -> None:
        await asyncio.sleep(60)

    async def struck() -> None: ...

    async def cool(cooldown: Cooldown = Cooldown(timedelta(minutes=5))) -> None: ...

    waiting = await docket.add(long, docket.now() + timedelta(hours=1))()
    await docket.cancel(waiting.key)
    await docket.add(struck)()
    await docket.strike(struck)
    for _ in range(3):
        await docket.add(cool)()
    execution = await docket.add(long)()
    async with running(worker):
        await reaches(execution, ExecutionState.RUNNING)
        await docket.cancel(execution.key)
        await reaches(execution, ExecutionState.CANCELLED)
        await within(eventually_counted(docket, 6))
    assert await counts(docket) == {
        "long": {"cancelled": 2},
        "struck": {"struck": 1},
        "cool": {"succeeded": 1, "dropped": 2},
    }
    # The task that waited has no times.
    assert (await docket.stats(long)).total.run_time.count == 1


async def eventually_counted(docket: Docket, number: int) -> None:
    while (await docket.stats()).total.ended < number:
        await asyncio.sleep(0.02)


async def test_a_run_that_the_worker_gives_back(docket: Docket) -> None:
    begun = asyncio.Event()

    async def long() -> None:
        begun.set()
        if not hurry:
            await asyncio.sleep(60)

    hurry = False
    await docket.add(long)()
    async with worker_for(docket, grace_period=timedelta(0)) as worker, running(worker):
        await within(begun.wait())
    assert await counts(docket) == {"long": {"interrupted": 1}}
    hurry = True
    await run_everything(docket)
    assert await counts(docket) == {"long": {"interrupted": 1, "succeeded": 1}}


async def test_a_task_that_waits_for_a_limit_is_counted_once_with_its_whole_waiting_time(docket: Docket) -> None:
    first_has_begun, go = asyncio.Event(), asyncio.Event()

    async def one_at_a_time(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        first_has_begun.set()
        await go.wait()

    for _ in range(3):
        await docket.add(one_at_a_time)()
    async with worker_for(docket) as worker, running(worker):
        await within(first_has_begun.wait())
        go.set()
        await within(eventually_counted(docket, 3))
    assert await counts(docket) == {"one_at_a_time": {"succeeded": 3}}


async def test_a_task_that_cannot_be_read_and_one_that_nobody_knows(docket: Docket) -> None:
    async def known() -> None: ...

    async def forgotten() -> None: ...

    unreadable = await docket.add(known)()
    async with docket.redis() as client:
        record: Any = await client.hget(docket.keys.tasks, unreadable.key)
        await client.hset(docket.keys.tasks, unreadable.key, record[:-4] + b"\0\0\0\0")
    await docket.add(forgotten)()
    docket.tasks.pop("forgotten")
    await run_everything(docket)
    assert await counts(docket) == {"known": {"unreadable": 1}, "forgotten": {"unknown_function": 1}}


async def test_a_manual_run_is_counted(docket: Docket) -> None:
    async def by_hand() -> None: ...

    for end in ("mark_as_completed", "mark_as_failed", "mark_as_cancelled"):
        execution = await docket.add(by_hand)()
        assert await execution.claim("somebody")
        await getattr(execution, end)()
    assert await counts(docket) == {"by_hand": {"succeeded": 1, "failed": 1, "cancelled": 1}}


async def test_a_replaced_run_is_not_counted(docket: Docket, worker: Worker) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(number: int) -> None:
        if number == 1:
            begun.set()
            await go.wait()

    await docket.add(slow, key="k")(1)
    async with running(worker):
        await within(begun.wait())
        await docket.replace(slow, docket.now(), "k")(2)
        go.set()
        await within(eventually_counted(docket, 1))
        await eventually(lambda: len(worker.staff.runs) == 0, "all runs are settled")
    assert await counts(docket) == {"slow": {"succeeded": 1}}


# Reading


async def test_minutes_and_hours_of_a_range(docket: Docket) -> None:
    async def plain() -> None: ...

    with Clock(docket) as clock:
        begin = docket.now()
        for _ in range(6):
            await docket.add(plain)()
            await run_everything(docket)
            await clock.advance(timedelta(hours=1))
        await check_ranges(docket, begin)


async def check_ranges(docket: Docket, begin: datetime) -> None:
    recent, day = await docket.stats(since=timedelta(hours=2, minutes=30)), await docket.stats(since=timedelta(days=1))
    assert (recent.total.ended, recent.resolution) == (2, timedelta(minutes=1))
    assert (day.total.ended, day.resolution) == (6, timedelta(hours=1))
    assert len(day.periods) == 6
    assert day.since <= begin < day.periods[0].until
    assert day.until > docket.now()
    first = await docket.stats("plain", since=begin - timedelta(hours=1), until=begin)
    assert first.total.ended == 1
    assert (await docket.stats(since=timedelta(0))).total.ended == 0


async def test_a_range_that_makes_no_sense_is_refused(docket: Docket) -> None:
    now = docket.now()
    with pytest.raises(ValueError, match="after until"):
        await docket.stats(since=now, until=now - timedelta(hours=1))
    with pytest.raises(ValueError, match="in the future"):
        await docket.stats(since=now + timedelta(hours=1))
    wrong: Any = 60
    with pytest.raises(TypeError, match="since=60"):
        await docket.stats(since=wrong)
    with pytest.raises(TypeError, match="until=60"):
        await docket.stats(until=wrong)
    # Longer ago than anything is kept.
    old = await docket.stats(since=timedelta(days=3650), until=now - timedelta(days=365))
    assert old.functions == ()


async def test_the_leader_folds_past_minutes(docket: Docket) -> None:
    async def plain() -> None: ...

    with Clock(docket) as clock:
        await docket.add(plain)()
        await run_everything(docket)
        await clock.advance(timedelta(minutes=5))
        open_minutes = docket.keys.key("stats-open")
        async with worker_for(docket) as worker, docket.redis() as client:
            assert await client.exists(open_minutes)
            async with running(worker):
                await eventually(lambda: is_gone(client, open_minutes), "no minute is open")
        assert (await docket.stats(since=timedelta(hours=5))).total.ended == 1


async def is_gone(client: Any, key: str) -> bool:
    return not await client.exists(key)


async def test_the_sync_docket_reads_the_same(docket: Docket) -> None:
    async def plain() -> None: ...

    await docket.add(plain)()
    await run_everything(docket)

    def read() -> Stats:
        with sync.Docket(docket.name, docket.url) as blocking:
            return blocking.stats("plain", since=timedelta(minutes=10))

    stats = await asyncio.to_thread(read)
    assert stats.total.endings == {EndingKind.SUCCEEDED: 1}
