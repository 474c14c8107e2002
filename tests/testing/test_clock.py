"""The clock that tests hold: time passes when they say so, and what falls due runs in its order."""

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from docket import (
    ConcurrencyLimit,
    Cooldown,
    Cron,
    CurrentDocket,
    CurrentExecution,
    Debounce,
    Disposition,
    Docket,
    Execution,
    ExecutionState,
    ExponentialRetry,
    Perpetual,
    RateLimit,
    Retry,
    Worker,
)
from docket.testing import Clock, assert_task_count
from tests.running import at_work

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
Marks = list[timedelta]


@pytest.fixture
def marks() -> Marks:
    """When tasks ran, counted from the beginning of the test."""
    return []


async def test_time_stands_still(docket: Docket, worker: Worker, clock: Clock) -> None:
    begin = clock.now()

    await asyncio.sleep(0.02)

    assert clock.now() == docket.now() == worker.now() == begin


async def test_nothing_runs_before_its_time(docket: Docket, clock: Clock) -> None:
    execution = await docket.add(note, when=clock.now() + HOUR)()

    await clock.advance(HOUR - timedelta(milliseconds=1))
    await execution.sync()
    assert execution.state is ExecutionState.SCHEDULED

    await clock.advance(timedelta(milliseconds=1))
    await execution.sync()
    assert execution.state is ExecutionState.COMPLETED


async def note() -> None: ...


async def test_a_time_with_microseconds_comes_too(docket: Docket, clock: Clock) -> None:
    execution = await docket.add(note, when=clock.now() + timedelta(microseconds=1_500))()

    await clock.advance(timedelta(milliseconds=2))

    await execution.sync()
    assert execution.state is ExecutionState.COMPLETED


async def test_what_falls_due_runs_in_its_order_and_at_its_time(docket: Docket, clock: Clock) -> None:
    begin, ran = clock.now(), list[tuple[str, timedelta]]()

    async def mark(name: str, docket: Docket = CurrentDocket(), execution: Execution = CurrentExecution()) -> None:
        ran.append((name, docket.now() - begin))
        assert execution.started_at == execution.when == docket.now()

    for name, delay in [("third", 3 * DAY), ("first", HOUR), ("second", 2 * DAY), ("never", 8 * DAY)]:
        await docket.add(mark, when=begin + delay)(name)
    await clock.advance(7 * DAY)

    assert ran == [("first", HOUR), ("second", 2 * DAY), ("third", 3 * DAY)]
    assert clock.now() == begin + 7 * DAY
    await assert_task_count(docket, mark, count=1)


async def test_what_a_task_schedules_runs_on_the_way(docket: Docket, clock: Clock, marks: Marks) -> None:
    begin = clock.now()

    async def chain(left: int, docket: Docket = CurrentDocket()) -> None:
        marks.append(docket.now() - begin)
        if left:
            await docket.add(chain, when=docket.now() + HOUR)(left - 1)

    await docket.add(chain)(5)
    await clock.advance(DAY)

    assert marks == [HOUR * i for i in range(6)]


async def test_retries_wait_for_their_delay(docket: Docket, clock: Clock, marks: Marks) -> None:
    begin = clock.now()

    async def flaky(
        retry: Retry = ExponentialRetry(attempts=6, minimum_delay=HOUR, maximum_delay=DAY),
        docket: Docket = CurrentDocket(),
    ) -> None:
        marks.append(docket.now() - begin)
        raise ConnectionError("not yet")

    execution = await docket.add(flaky)()
    await clock.advance(7 * DAY)

    assert marks == [HOUR * i for i in (0, 1, 3, 7, 15, 31)]
    with pytest.raises(ConnectionError):
        await execution.get_result()


async def test_a_retry_at_a_time(docket: Docket, clock: Clock, marks: Marks) -> None:
    begin = clock.now()

    async def tomorrow(retry: Retry = Retry(attempts=2), docket: Docket = CurrentDocket()) -> None:
        marks.append(docket.now() - begin)
        if retry.attempt == 1:
            retry.at(begin + DAY)

    await docket.add(tomorrow)()
    await clock.advance(2 * DAY)

    assert marks == [timedelta(0), DAY]


async def test_a_week_of_nights(docket: Docket, clock: Clock) -> None:
    ran: list[str] = []

    async def nightly(
        cron: Cron = Cron("30 2 * * *", tz=ZoneInfo("America/New_York")), docket: Docket = CurrentDocket()
    ) -> None:
        ran.append(docket.now().astimezone(ZoneInfo("America/New_York")).strftime("%d %H:%M"))

    docket.register(nightly)
    clock.set(datetime(2026, 10, 28, 12, tzinfo=UTC))
    await clock.advance(7 * DAY)

    assert ran == [f"{day} 02:30" for day in ("29", "30", "31", "01", "02", "03", "04")]


async def test_a_perpetual_keeps_its_rhythm(docket: Docket, clock: Clock, marks: Marks) -> None:
    begin = clock.now()

    async def tick(
        perpetual: Perpetual = Perpetual(every=HOUR, automatic=True), docket: Docket = CurrentDocket()
    ) -> None:
        marks.append(docket.now() - begin)

    docket.register(tick)
    await clock.advance(10.5 * HOUR)

    assert len(marks) == 11
    # The run itself takes real time, which is subtracted.
    assert all(abs(mark - HOUR * i) < SECOND * 5 for i, mark in enumerate(marks))


async def test_run_until_finished_skips_to_future_work(docket: Docket, worker: Worker, clock: Clock) -> None:
    begin = clock.now()
    await docket.add(note, when=begin + DAY)()
    await docket.add(note, when=begin + 365 * DAY)()

    await worker.run_until_finished()

    assert clock.now() == begin + 365 * DAY


async def test_run_at_most_skips_too(docket: Docket, worker: Worker, clock: Clock, marks: Marks) -> None:
    begin = clock.now()

    async def daily(perpetual: Perpetual = Perpetual(every=DAY), docket: Docket = CurrentDocket()) -> None:
        marks.append(docket.now() - begin)

    await docket.add(daily, key="daily")()
    await worker.run_at_most({"daily": 5})

    assert len(marks) == 5
    assert abs(clock.now() - (begin + 4 * DAY)) < MINUTE


async def test_a_worker_that_runs_already_does_the_work(docket: Docket, marks: Marks) -> None:
    with Clock(docket) as clock:
        begin = clock.now()

        async def mark(docket: Docket = CurrentDocket()) -> None:
            marks.append(docket.now() - begin)

        for i in range(3):
            await docket.add(mark, when=begin + DAY * i)()
        async with Worker(docket) as worker, at_work(worker):
            await clock.advance(DAY)
            assert marks == [timedelta(0), DAY]
            await clock.advance(DAY)
            assert len(marks) == 3
            assert worker.is_working


async def test_without_a_worker_time_passes_and_due_tasks_are_ready(docket: Docket) -> None:
    with Clock(docket) as clock:
        execution = await docket.add(note, when=clock.now() + HOUR)()

        await clock.advance(HOUR)

        await execution.sync()
        assert execution.state is ExecutionState.QUEUED


async def test_another_docket_of_the_same_name_has_the_same_time(docket: Docket, clock: Clock) -> None:
    async with Docket("application", docket.url) as application:
        await clock.advance(DAY)

        assert application.now() == clock.now()
        execution = await application.add(note)()
        assert execution.state is ExecutionState.QUEUED


async def test_other_dockets_keep_their_time(clock: Clock) -> None:
    await clock.advance(DAY)

    async with Docket("other", "memory://of-its-own") as other:
        assert abs(other.now() - datetime.now(UTC)) < MINUTE


async def test_when_the_clock_is_closed_real_time_is_back(docket: Docket) -> None:
    with Clock(docket, at=datetime(2040, 1, 1, tzinfo=UTC)):
        assert docket.now().year == 2040
    assert abs(docket.now() - datetime.now(UTC)) < MINUTE


async def test_time_can_be_set_back_at_the_beginning(docket: Docket, clock: Clock) -> None:
    clock.set(datetime(1999, 12, 31, 23, 59, tzinfo=UTC))
    execution = await docket.add(note, when=clock.now() + MINUTE)()

    await clock.travel_to(datetime(2000, 1, 1, tzinfo=UTC))

    await execution.sync()
    assert execution.state is ExecutionState.COMPLETED
    assert execution.completed_at == datetime(2000, 1, 1, tzinfo=UTC)


async def test_a_time_that_has_passed_is_refused(clock: Clock) -> None:
    with pytest.raises(ValueError, match="has passed on this clock"):
        await clock.travel_to(clock.now() - SECOND)


async def test_only_one_clock_at_a_time(docket: Docket, clock: Clock) -> None:
    with pytest.raises(RuntimeError, match="another Clock"):
        Clock(docket)


async def test_a_real_server_keeps_real_time() -> None:
    with pytest.raises(ValueError, match="memory://"):
        Clock(Docket("real", "redis://localhost:1/0"))


async def test_a_task_that_does_not_end_is_named(docket: Docket, worker: Worker) -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    await docket.add(stuck, key="k")()
    clock = Clock(docket, worker, patience=timedelta(milliseconds=200))
    with clock, pytest.raises(TimeoutError, match=r"stuck 'k' \(running\)"):
        await clock.advance(HOUR)


async def test_a_chain_without_end_is_no_endless_test(docket: Docket, worker: Worker) -> None:
    async def often(perpetual: Perpetual = Perpetual()) -> None: ...

    await docket.add(often)()
    clock = Clock(docket, worker, patience=timedelta(milliseconds=300))
    with clock, pytest.raises(TimeoutError, match="schedules itself again at once"):
        await clock.advance(HOUR)


async def test_the_lease_outlives_any_jump(docket: Docket, clock: Clock, marks: Marks) -> None:
    """Leases go by real time: a day more on the clock does not make a worker look dead."""
    begin = clock.now()

    async def mark(docket: Docket = CurrentDocket()) -> None:
        marks.append(docket.now() - begin)
        await asyncio.sleep(0.01)

    for i in range(100):
        await docket.add(mark, when=begin + DAY * i)()
    await clock.advance(100 * DAY)

    assert marks == [DAY * i for i in range(100)]


async def test_a_debounce_settles_by_the_clock(docket: Docket, clock: Clock, marks: Marks) -> None:
    begin = clock.now()

    async def index(debounce: Debounce = Debounce(MINUTE), docket: Docket = CurrentDocket()) -> None:
        marks.append(docket.now() - begin)

    for _ in range(5):
        await docket.add(index)()
        await clock.advance(30 * SECOND)
    await clock.advance(HOUR)

    assert marks == [180 * SECOND]


async def test_a_cooldown_ends_by_the_clock(docket: Docket, clock: Clock, marks: Marks) -> None:
    begin = clock.now()

    async def alert(cooldown: Cooldown = Cooldown(HOUR), docket: Docket = CurrentDocket()) -> None:
        marks.append(docket.now() - begin)

    for _ in range(10):
        await docket.add(alert)()
        await clock.advance(20 * MINUTE)

    assert marks == [HOUR * i for i in range(4)]


async def test_a_rate_limit_slides_by_the_clock(docket: Docket, clock: Clock, marks: Marks) -> None:
    begin = clock.now()

    async def call(limit: RateLimit = RateLimit(2, per=MINUTE), docket: Docket = CurrentDocket()) -> None:
        marks.append(docket.now() - begin)

    for _ in range(6):
        await docket.add(call)()
    await clock.advance(HOUR)

    assert [round(mark / MINUTE) for mark in marks] == [0, 0, 1, 1, 2, 2]


async def test_a_concurrency_limit_needs_no_time_at_all(docket: Docket, clock: Clock) -> None:
    running = most = 0

    async def careful(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=2)) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1

    executions = [await docket.add(careful)() for _ in range(10)]
    await clock.advance()

    for execution in executions:
        await execution.sync()
    assert {execution.state for execution in executions} == {ExecutionState.COMPLETED}
    assert most == 2


async def test_keys_are_free_again_when_their_task_has_run(docket: Docket, clock: Clock) -> None:
    for _ in range(3):
        execution = await docket.add(note, when=clock.now() + DAY, key="daily")()
        assert execution.disposition is Disposition.SCHEDULED
        await clock.advance(DAY)
