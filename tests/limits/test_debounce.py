"""What a user gets from Debounce."""

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Annotated

import pytest

from docket import ConcurrencyLimit, Debounce, Docket, Execution, ExecutionState, Perpetual, RateLimit, Retry
from tests.limits.helpers import assert_nothing_is_left, open_docket, parked
from tests.nodes import keys_like
from tests.run_log import RunLog
from tests.running import run_with_defaults, worker_at_work
from tests.waiting import WAIT_LIMIT, eventually, reaches

# Long enough for a busy machine to get the next submission in. To the millisecond:
# test_limits_by_the_clock.py.
SETTLE = 1.2


@pytest.fixture
def run_log() -> RunLog:
    return RunLog()


def ms(milliseconds: float) -> timedelta:
    return timedelta(milliseconds=milliseconds)


async def waits(execution: Execution) -> None:
    await reaches(execution, ExecutionState.SCHEDULED)


async def test_a_burst_becomes_one_run_after_it_is_quiet(run_log: RunLog) -> None:
    async def index(n: int, debounce: Debounce = Debounce(timedelta(seconds=SETTLE))) -> None:
        assert debounce.settle == timedelta(seconds=SETTLE)
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket):
        first = await docket.add(index)(0)
        last = time.monotonic()
        await waits(first)
        for n in range(1, 6):
            await asyncio.sleep(0.1)
            last = time.monotonic()
            later = await docket.add(index)(n)
            await reaches(later, ExecutionState.CANCELLED)
            assert "dropped: a debounce" in (later.error or "")
        await first.get_result(timeout=WAIT_LIMIT)
        assert run_log.times[0] - last >= SETTLE
        await assert_nothing_is_left(docket)
    # The run has the arguments of the first submission.
    assert run_log.began == [0]


async def test_the_latest_arguments_are_used_if_asked_for(run_log: RunLog) -> None:
    async def index(n: int, debounce: Debounce = Debounce(timedelta(seconds=SETTLE), latest=True)) -> None:
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket):
        executions: list[Execution] = []
        last = 0.0
        for n in range(6):
            last = time.monotonic()
            executions.append(await docket.add(index)(n))
            await waits(executions[-1])
        for earlier in executions[:-1]:
            await reaches(earlier, ExecutionState.CANCELLED)
            assert earlier.error == "dropped: a debounce (another submission runs instead)"
        await executions[-1].get_result(timeout=WAIT_LIMIT)
        assert run_log.times[0] - last >= SETTLE
        await assert_nothing_is_left(docket)
    assert run_log.began == [5]


@pytest.mark.parametrize("latest", [False, True])
async def test_of_many_at_once_on_several_workers_the_right_one_runs(run_log: RunLog, latest: bool) -> None:
    async def index(n: int, debounce: Debounce = Debounce(timedelta(seconds=0.2), latest=latest)) -> None:
        run_log.begin(n)

    async with open_docket() as docket:
        # All are there before anybody looks; the workers ask about them in whatever order.
        executions = await docket.add_many([docket.call(index)(n) for n in range(60)])
        async with (
            worker_at_work(docket, concurrency=20),
            worker_at_work(docket, concurrency=20),
            worker_at_work(docket, concurrency=20),
        ):
            await eventually(lambda: run_log.began, "one has run")
            for execution in executions:
                await eventually(lambda execution=execution: _is_over(execution), "all are over")
        await assert_nothing_is_left(docket)
    assert run_log.began == [59 if latest else 0]
    assert Counter(e.state for e in executions) == {ExecutionState.COMPLETED: 1, ExecutionState.CANCELLED: 59}


async def _is_over(execution: Execution) -> bool:
    await execution.sync()
    return execution.state.finished


async def test_each_burst_has_a_run(run_log: RunLog) -> None:
    async def index(n: int, debounce: Debounce = Debounce(ms(100))) -> None:
        run_log.begin(n)

    async with open_docket() as docket:
        for burst in range(3):
            await docket.add_many([docket.call(index)(burst) for _ in range(5)])
            await run_with_defaults(docket)
    assert run_log.began == [0, 1, 2]


async def test_submissions_that_come_while_it_runs_have_a_run_of_their_own(run_log: RunLog) -> None:
    async def index(n: int, debounce: Debounce = Debounce(ms(100))) -> None:
        await run_log.hold(n)

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(index)(0)
        await run_log.has(0)
        await docket.add(index)(1)
        await docket.add(index)(2)
        await eventually(lambda: len(run_log.began) == 2, "the next burst has its run")
        run_log.let_go(0, 1, 2)
    assert run_log.began[0] == 0
    assert run_log.began[1] == 1


async def test_a_debounce_on_a_parameter_is_for_each_value(run_log: RunLog) -> None:
    async def index(shop: Annotated[str, Debounce(ms(150), latest=True)], n: int) -> None:
        run_log.begin((shop, n))

    async with open_docket() as docket:
        await docket.add_many([docket.call(index)(shop, n) for n in range(4) for shop in "abc"])
        await run_with_defaults(docket)
    assert sorted(run_log.began) == [("a", 3), ("b", 3), ("c", 3)]


async def test_scopes_set_debounces_apart(run_log: RunLog) -> None:
    async def one(shop: Annotated[str, Debounce(ms(100), scope="one")]) -> None:
        run_log.begin("one")

    async def two(shop: Annotated[str, Debounce(ms(100), scope="two")]) -> None:
        run_log.begin("two")

    async with open_docket() as docket:
        await docket.add(one)("a")
        await docket.add(two)("a")
        await run_with_defaults(docket)
    assert sorted(run_log.began) == ["one", "two"]


async def test_when_the_one_that_waits_is_cancelled_the_next_takes_its_place(run_log: RunLog) -> None:
    async def index(n: int, debounce: Debounce = Debounce(timedelta(seconds=SETTLE))) -> None:
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket):
        first = await docket.add(index)(0)
        await waits(first)
        await docket.cancel(first.key)
        second = await docket.add(index)(1)
        await waits(second)
        await second.get_result(timeout=WAIT_LIMIT)
    assert run_log.began == [1]


async def test_the_key_of_the_one_that_waits_may_be_used_for_something_else(run_log: RunLog) -> None:
    """Another task of that key must not be taken for the submission that waits."""

    async def index(shop: Annotated[str, Debounce(timedelta(seconds=SETTLE))], n: int) -> None:
        run_log.begin((shop, n))

    async with open_docket() as docket, worker_at_work(docket):
        first = await docket.add(index, key="k")("a", 0)
        await waits(first)
        await docket.replace(index, datetime.now(UTC), "k")("b", 1)
        await eventually(lambda: _leads(docket, 2), "both shops have somebody who waits")
        second = await docket.add(index)("a", 2)
        await waits(second)
        await run_log.has(("b", 1), ("a", 2))
    assert sorted(run_log.began) == [("a", 2), ("b", 1)]


async def _leads(docket: Docket, count: int) -> bool:
    return len(await keys_like(docket, f"{docket.prefix}:debounce:=*")) == count


async def test_replacing_the_one_that_waits_is_a_new_submission(run_log: RunLog) -> None:
    async def index(n: int, debounce: Debounce = Debounce(timedelta(seconds=SETTLE))) -> None:
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket):
        await waits(await docket.add(index, key="k")(0))
        await asyncio.sleep(SETTLE / 2)
        replaced = time.monotonic()
        execution = await docket.replace(index, datetime.now(UTC), "k")(1)
        await execution.get_result(timeout=WAIT_LIMIT)
    assert run_log.began == [1]
    assert run_log.times[0] - replaced >= SETTLE


async def test_the_retries_of_a_run_do_not_wait_again(run_log: RunLog) -> None:
    async def index(
        n: int, debounce: Debounce = Debounce(timedelta(seconds=SETTLE)), retry: Retry = Retry(attempts=3, delay=ms(1))
    ) -> None:
        run_log.begin(retry.attempt)
        raise RuntimeError("once more")

    async with open_docket() as docket:
        await docket.add(index)(0)
        await run_with_defaults(docket)
    assert run_log.began == [1, 2, 3]
    assert run_log.times[2] - run_log.times[0] < SETTLE


async def test_a_run_that_is_delivered_again_does_not_wait_again(run_log: RunLog) -> None:
    async def index(n: int, debounce: Debounce = Debounce(timedelta(seconds=4))) -> None:
        await run_log.hold(n)

    async with open_docket() as docket:
        execution = await docket.add(index)(0)
        async with worker_at_work(docket, grace_period=timedelta(0)):
            await run_log.has(0)
        run_log.let_go(0)
        again = time.monotonic()
        async with worker_at_work(docket):
            await execution.get_result(timeout=WAIT_LIMIT)
    assert run_log.began == [0, 0]
    assert run_log.times[1] - again < 3.5


async def test_a_worker_that_stops_while_one_waits_loses_nothing(run_log: RunLog) -> None:
    async def index(n: int, debounce: Debounce = Debounce(timedelta(seconds=SETTLE))) -> None:
        run_log.begin(n)

    async with open_docket() as docket:
        async with worker_at_work(docket):
            await waits(await docket.add(index)(0))
        await run_with_defaults(docket)
    assert run_log.began == [0]


async def test_a_lost_state_costs_a_wait_and_not_the_run(run_log: RunLog) -> None:
    async def index(n: int, debounce: Debounce = Debounce(timedelta(seconds=SETTLE))) -> None:
        run_log.begin(n)

    async with open_docket() as docket:
        async with worker_at_work(docket):
            await waits(await docket.add(index)(0))
        async with docket.redis() as redis:
            for key in await keys_like(docket, f"{docket.prefix}:debounce:=*"):
                await redis.delete(key)
        await run_with_defaults(docket)
    assert run_log.began == [0]


async def test_a_run_that_has_to_wait_for_a_slot_or_a_rate_does_not_wait_for_quiet_again(run_log: RunLog) -> None:
    async def index(
        shop: Annotated[int, Debounce(timedelta(seconds=3))],
        rate: RateLimit = RateLimit(2, per=ms(300)),
        slot: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1),
    ) -> None:
        await run_log.nap(shop, seconds=0.02)

    async with open_docket() as docket:
        await docket.add_many([docket.call(index)(shop) for shop in range(6) for _ in range(3)])
        await run_with_defaults(docket)
        await assert_nothing_is_left(docket)
    assert sorted(run_log.began) == list(range(6))
    assert run_log.times[-1] - run_log.times[0] < 3


async def test_one_that_waits_for_a_slot_and_gets_it_runs_once(run_log: RunLog) -> None:
    async def index(
        n: int, debounce: Debounce = Debounce(ms(50)), slot: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)
    ) -> None:
        await run_log.hold(n)

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(index)(0)
        await run_log.has(0)
        await docket.add(index)(1)
        await parked(docket, 1)
        run_log.let_go(0, 1)
        await run_log.has(1)
    assert run_log.began == [0, 1]


@pytest.mark.parametrize("latest", [False, True])
async def test_perpetual_tasks_that_drop_each_other_live_and_all_get_their_turn(run_log: RunLog, latest: bool) -> None:
    async def tick(
        who: str,
        debounce: Debounce = Debounce(ms(400), latest=latest),
        perpetual: Perpetual = Perpetual(every=timedelta(seconds=0.05)),
    ) -> None:
        run_log.begin(who)
        perpetual.after(timedelta(hours=1))

    async with open_docket() as docket, worker_at_work(docket):
        for who in "abc":
            await docket.add(tick, key=who)(who)
        await run_log.has("a", "b", "c")
        assert (await docket.ledger.queries.census()).unfinished == 3
        for who in "abc":
            await docket.cancel(who)


@pytest.mark.parametrize("bad", [timedelta(0), timedelta(seconds=-1)])
def test_a_time_that_is_not_positive_is_refused(bad: timedelta) -> None:
    with pytest.raises(ValueError, match=r"Debounce\(settle="):
        Debounce(bad)


async def test_two_debounces_on_one_task_are_refused() -> None:
    async def index(a: Annotated[int, Debounce(ms(1))], b: Annotated[int, Debounce(ms(1))]) -> None: ...

    async with open_docket() as docket:
        with pytest.raises(ValueError, match="index.*Only one Debounce"):
            docket.register(index)
