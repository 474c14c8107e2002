"""What a user gets from RateLimit."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest

from docket import ConcurrencyLimit, Docket, ExecutionState, Perpetual, RateLimit, Retry
from tests.limits.helpers import NotOnTheFirstTry, assert_nothing_is_left, open_docket
from tests.nodes import command_counts, reset_command_counts
from tests.run_log import RunLog
from tests.running import run_with_defaults, worker_at_work
from tests.waiting import WAIT_LIMIT, eventually, reaches

# The way from the decision to the body takes its time on a busy machine. To the millisecond:
# test_limits_by_the_clock.py.
SURELY = 0.4


@pytest.fixture
def run_log() -> RunLog:
    return RunLog()


def ms(milliseconds: float) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def assert_window_holds(times: list[float], limit: int, per: float) -> None:
    for earlier, later in zip(times, times[limit:], strict=False):
        assert later - earlier > per * SURELY, f"{limit + 1} within {later - earlier:.3f} s"


async def add_all(docket: Docket, function: Any, count: int) -> None:
    await docket.add_many([docket.call(function)(n) for n in range(count)])


async def test_no_window_has_more_beginnings_than_the_limit_and_all_run(run_log: RunLog) -> None:
    async def call(n: int, limit: RateLimit = RateLimit(4, per=ms(500))) -> None:
        assert (limit.limit, limit.per, limit.drop) == (4, ms(500), False)
        run_log.begin(n)

    async with open_docket() as docket:
        await add_all(docket, call, 18)
        await run_with_defaults(docket, concurrency=20)
        await assert_nothing_is_left(docket)
    assert sorted(run_log.began) == list(range(18))
    assert_window_holds(run_log.times, 4, 0.5)
    # Five windows are needed; nobody waits for a sixth.
    assert run_log.times[-1] - run_log.times[0] < 4 * 0.5 + 1.0


async def test_the_window_slides(run_log: RunLog) -> None:
    """Two at the end of one window and two at the beginning of the next would be four in a row."""

    async def call(n: int, limit: RateLimit = RateLimit(2, per=ms(600))) -> None:
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket):
        for n in range(2):
            await docket.add(call, when=datetime.now(UTC) + ms(400))(n)
        await run_log.has(0, 1)
        await docket.add(call)(2)
        await docket.add(call)(3)
        await run_log.has(2, 3)
    assert_window_holds(run_log.times, 2, 0.6)


async def test_what_is_too_much_does_not_come_back_before_its_turn(run_log: RunLog) -> None:
    async def call(n: int, limit: RateLimit = RateLimit(2, per=ms(60))) -> None:
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket, concurrency=10):
        await reset_command_counts(docket)
        await add_all(docket, call, 100)
        await run_log.has(*range(100))
        written = (await command_counts(docket))["zadd"]
    # Two for each time that a task is delayed (about twice each), one when it begins. If all came
    # back whenever a place is free, there would be five thousand.
    assert 100 <= written < 2000, f"{written} for 100 tasks"


async def test_a_task_that_is_delayed_is_scheduled_for_its_turn(run_log: RunLog) -> None:
    async def call(n: int, limit: RateLimit = RateLimit(1, per=timedelta(hours=1))) -> None:
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(call)(0)
        await run_log.has(0)
        for n, hours in ((1, 1), (2, 2), (3, 3)):
            execution = await docket.add(call)(n)
            await reaches(execution, ExecutionState.SCHEDULED)
            assert abs(execution.when - datetime.now(UTC) - timedelta(hours=hours)) < timedelta(seconds=30)
        await docket.cancel(execution.key)
        # The place of the one that was cancelled is given out again.
        execution = await docket.add(call)(4)
        await reaches(execution, ExecutionState.SCHEDULED)
        assert abs(execution.when - datetime.now(UTC) - timedelta(hours=3)) < timedelta(seconds=30)
    assert run_log.began == [0]


async def test_places_of_tasks_that_were_cleared_are_given_out_again(run_log: RunLog) -> None:
    async def call(n: int, limit: RateLimit = RateLimit(1, per=timedelta(minutes=1))) -> None:
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket, concurrency=50):
        await add_all(docket, call, 1200)

        async def are_delayed() -> bool:
            return (await docket.ledger.queries.census()).scheduled == 1199

        await eventually(are_delayed, "all but one are delayed")
        assert await docket.clear() == 1199
        execution = await docket.add(call)(2000)
        await reaches(execution, ExecutionState.SCHEDULED)
        await eventually(lambda: _is_due_within(execution, timedelta(minutes=1)), "it is next")


async def _is_due_within(execution: Any, limit: timedelta) -> bool:
    await execution.sync()
    return (
        execution.state is ExecutionState.SCHEDULED
        and timedelta(seconds=1) < execution.when - datetime.now(UTC) < limit
    )


async def test_the_limit_holds_also_when_all_come_back_late(run_log: RunLog) -> None:
    """Their turns pass while nobody works; then they must not all begin at once."""

    async def call(n: int, limit: RateLimit = RateLimit(2, per=ms(600))) -> None:
        run_log.begin(n)

    async with open_docket() as docket:
        async with worker_at_work(docket):
            await add_all(docket, call, 10)
            await run_log.has(*run_log.began[:2])
            await eventually(lambda: len(run_log.began) >= 2, "the first two have begun")

            async def are_delayed() -> bool:
                return (await docket.ledger.queries.census()).scheduled >= 6

            await eventually(are_delayed, "the others are delayed")
        await asyncio.sleep(3.2)
        await run_with_defaults(docket)
    assert sorted(run_log.began) == list(range(10))
    assert_window_holds(run_log.times, 2, 0.6)


async def test_what_is_too_much_is_dropped_if_asked_for(run_log: RunLog) -> None:
    async def call(n: int, limit: RateLimit = RateLimit(2, per=timedelta(hours=1), drop=True)) -> None:
        run_log.begin(n)

    async with open_docket() as docket:
        executions = [await docket.add(call)(n) for n in range(6)]
        await run_with_defaults(docket)
        states = Counter()
        for execution in executions:
            await execution.sync()
            states[execution.state] += 1
            if execution.state is ExecutionState.CANCELLED:
                assert "rate limit of 2 per 60m" in (execution.error or "")
        await assert_nothing_is_left(docket)
    assert states == {ExecutionState.COMPLETED: 2, ExecutionState.CANCELLED: 4}
    assert len(run_log.began) == 2


async def test_a_limit_on_a_parameter_holds_for_each_value(run_log: RunLog) -> None:
    async def call(customer: Annotated[int, RateLimit(1, per=timedelta(hours=1), drop=True)], n: int) -> None:
        run_log.begin((customer, n))

    async with open_docket() as docket:
        for n in range(3):
            for customer in range(3):
                await docket.add(call)(customer, n)
        await run_with_defaults(docket)
    assert Counter(customer for customer, _ in run_log.began) == {0: 1, 1: 1, 2: 1}


async def test_scopes_set_limits_apart(run_log: RunLog) -> None:
    async def one(customer: Annotated[int, RateLimit(1, per=timedelta(hours=1), drop=True, scope="one")]) -> None:
        run_log.begin("one")

    async def two(customer: Annotated[int, RateLimit(1, per=timedelta(hours=1), drop=True, scope="two")]) -> None:
        run_log.begin("two")

    async with open_docket() as docket:
        await docket.add(one)(1)
        await docket.add(two)(1)
        await run_with_defaults(docket)
    assert sorted(run_log.began) == ["one", "two"]


async def test_a_task_that_fails_keeps_its_place(run_log: RunLog) -> None:
    async def call(n: int, limit: RateLimit = RateLimit(1, per=ms(500))) -> None:
        run_log.begin(n)
        raise RuntimeError("failed")

    async with open_docket() as docket:
        await add_all(docket, call, 3)
        await run_with_defaults(docket)
    assert_window_holds(run_log.times, 1, 0.5)


async def test_a_retry_needs_a_place_of_its_own(run_log: RunLog) -> None:
    async def call(
        limit: RateLimit = RateLimit(1, per=ms(600)), retry: Retry = Retry(attempts=3, delay=timedelta(0))
    ) -> None:
        run_log.begin(retry.attempt)
        raise RuntimeError("once more")

    async with open_docket() as docket:
        await docket.add(call)()
        await run_with_defaults(docket)
    assert run_log.began == [1, 2, 3]
    assert_window_holds(run_log.times, 1, 0.6)


async def test_a_task_that_something_else_blocks_gives_its_place_back(run_log: RunLog) -> None:
    async def call(
        n: int,
        limit: RateLimit = RateLimit(1, per=timedelta(hours=1), drop=True),
        gate: Any = NotOnTheFirstTry(),
    ) -> None:
        run_log.begin(n)

    async with open_docket() as docket:
        await docket.add(call)(0)
        await run_with_defaults(docket)
    assert run_log.began == [0]


async def test_a_task_that_waits_for_a_slot_gives_its_place_back(run_log: RunLog) -> None:
    async def call(
        n: int,
        slot: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1),
        limit: RateLimit = RateLimit(2, per=timedelta(hours=1), drop=True),
    ) -> None:
        await run_log.nap(n, seconds=0.1)

    async with open_docket() as docket:
        # All but one wait for the slot; while they wait they take nobody's place.
        executions = [await docket.add(call)(n) for n in range(6)]
        await run_with_defaults(docket)
        for execution in executions:
            await execution.sync()
        await assert_nothing_is_left(docket)
    assert len(run_log.began) == 2
    assert Counter(e.state for e in executions) == {ExecutionState.COMPLETED: 2, ExecutionState.CANCELLED: 4}


async def test_a_run_that_was_interrupted_is_not_counted_twice(run_log: RunLog) -> None:
    async def call(n: int, limit: RateLimit = RateLimit(1, per=timedelta(hours=1))) -> None:
        await run_log.hold(n)

    async with open_docket() as docket:
        execution = await docket.add(call)(0)
        async with worker_at_work(docket, grace_period=timedelta(0)):
            await run_log.has(0)
        run_log.let_go(0)
        async with worker_at_work(docket):
            await execution.get_result(timeout=WAIT_LIMIT)
    assert run_log.began == [0, 0]


async def test_a_perpetual_task_that_is_dropped_goes_on(run_log: RunLog) -> None:
    async def tick(
        limit: RateLimit = RateLimit(1, per=ms(600), drop=True), perpetual: Perpetual = Perpetual(every=ms(20))
    ) -> None:
        run_log.begin("tick")

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(tick, key="tick")()
        await eventually(lambda: len(run_log.began) >= 3, "it has run three times")
        await docket.cancel("tick")
    assert_window_holds(run_log.times, 1, 0.6)


@pytest.mark.parametrize("bad", [0, -3])
def test_a_limit_below_one_is_refused(bad: int) -> None:
    with pytest.raises(ValueError, match=rf"RateLimit\(limit={bad}\).*at least 1"):
        RateLimit(bad, per=ms(1))


@pytest.mark.parametrize("bad", [timedelta(0), timedelta(seconds=-1)])
def test_a_time_that_is_not_positive_is_refused(bad: timedelta) -> None:
    with pytest.raises(ValueError, match=r"RateLimit\(per="):
        RateLimit(1, per=bad)


def test_a_limit_that_is_no_whole_number_is_refused() -> None:
    with pytest.raises(TypeError, match="whole number"):
        RateLimit(0.5, per=ms(1))  # type: ignore[arg-type]
