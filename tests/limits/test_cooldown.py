"""What a user gets from Cooldown."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Annotated, Any

import pytest

from docket import ConcurrencyLimit, Cooldown, Docket, Execution, ExecutionState, Perpetual, RateLimit, Retry
from docket.dependencies import AdmissionBlocked, CompletionHandler, Dependency, TaskOutcome, current_execution
from tests.limits.helpers import assert_nothing_is_left, open_docket, parked
from tests.run_log import RunLog
from tests.running import run_with_defaults, worker_at_work
from tests.waiting import WAIT_LIMIT, eventually, reaches

HOUR = timedelta(hours=1)
# The way from the decision to the body takes its time on a busy machine. To the millisecond:
# test_limits_by_the_clock.py.
SURELY = 0.4


@pytest.fixture
def run_log() -> RunLog:
    return RunLog()


def ms(milliseconds: float) -> timedelta:
    return timedelta(milliseconds=milliseconds)


async def test_the_first_runs_and_the_rest_of_the_window_is_dropped(run_log: RunLog) -> None:
    async def refresh(n: int, cooldown: Cooldown = Cooldown(HOUR)) -> None:
        assert cooldown.window == HOUR
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(refresh)(0)
        await run_log.has(0)
        for n in range(1, 4):
            dropped = await docket.add(refresh)(n)
            await reaches(dropped, ExecutionState.CANCELLED)
            assert "dropped: a cooldown" in (dropped.error or "")
    assert run_log.began == [0]


async def test_after_the_window_the_next_one_runs(run_log: RunLog) -> None:
    async def refresh(n: int, cooldown: Cooldown = Cooldown(ms(600))) -> None:
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(refresh)(0)
        await run_log.has(0)

        async def another_ran() -> bool:
            await docket.add(refresh)(len(run_log.began))
            return len(run_log.began) > 2

        await eventually(another_ran, "two more have run")
    assert run_log.times[1] - run_log.times[0] > 0.6 * SURELY
    assert run_log.times[2] - run_log.times[1] > 0.6 * SURELY


async def test_of_many_at_once_one_runs(run_log: RunLog) -> None:
    async def refresh(n: int, cooldown: Cooldown = Cooldown(HOUR)) -> None:
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket), worker_at_work(docket):
        executions = await docket.add_many([docket.call(refresh)(n) for n in range(30)])
        for execution in executions:
            await eventually(lambda execution=execution: _is_over(execution), "all are over")
        assert Counter(e.state for e in executions) == {ExecutionState.COMPLETED: 1, ExecutionState.CANCELLED: 29}
        await assert_nothing_is_left(docket)
    assert len(run_log.began) == 1


async def _is_over(execution: Execution) -> bool:
    await execution.sync()
    return execution.state.finished


async def test_a_cooldown_on_a_parameter_is_for_each_value(run_log: RunLog) -> None:
    async def refresh(customer: Annotated[int, Cooldown(HOUR)], n: int) -> None:
        run_log.begin(customer)

    async with open_docket() as docket:
        for n in range(3):
            for customer in range(4):
                await docket.add(refresh)(customer, n)
        await run_with_defaults(docket)
    assert sorted(run_log.began) == [0, 1, 2, 3]


async def test_scopes_set_cooldowns_apart(run_log: RunLog) -> None:
    async def one(customer: Annotated[int, Cooldown(HOUR, scope="one")]) -> None:
        run_log.begin("one")

    async def two(customer: Annotated[int, Cooldown(HOUR, scope="two")]) -> None:
        run_log.begin("two")

    async with open_docket() as docket:
        await docket.add(one)(1)
        await docket.add(two)(1)
        await run_with_defaults(docket)
    assert sorted(run_log.began) == ["one", "two"]


async def test_a_task_may_have_two_cooldowns(run_log: RunLog) -> None:
    async def refresh(n: int, short: Cooldown = Cooldown(ms(1)), long: Cooldown = Cooldown(HOUR)) -> None:
        run_log.begin(n)

    async with open_docket() as docket:
        await docket.add(refresh)(0)
        await run_with_defaults(docket)
        await docket.add(refresh)(1)
        await run_with_defaults(docket)
    assert run_log.began == [0]


async def test_a_cooldown_does_not_drop_the_retries_of_its_own_run(run_log: RunLog) -> None:
    async def refresh(
        n: int, cooldown: Cooldown = Cooldown(HOUR), retry: Retry = Retry(attempts=3, delay=ms(5))
    ) -> None:
        run_log.begin((n, retry.attempt))
        if retry.attempt < 3:
            raise RuntimeError("once more")

    async with open_docket() as docket:
        execution = await docket.add(refresh)(0)
        await run_with_defaults(docket)
        await execution.get_result()
        await docket.add(refresh)(1)
        await run_with_defaults(docket)
    assert run_log.began == [(0, 1), (0, 2), (0, 3)]


async def test_a_cooldown_does_not_drop_its_own_run_when_it_is_delivered_again(run_log: RunLog) -> None:
    async def refresh(n: int, cooldown: Cooldown = Cooldown(HOUR)) -> None:
        await run_log.hold(n)

    async with open_docket() as docket:
        execution = await docket.add(refresh)(0)
        async with worker_at_work(docket, grace_period=timedelta(0)):
            await run_log.has(0)
        run_log.let_go(0)
        async with worker_at_work(docket):
            await execution.get_result(timeout=WAIT_LIMIT)
    assert run_log.began == [0, 0]


async def test_a_key_that_is_used_again_within_the_window_is_dropped(run_log: RunLog) -> None:
    async def refresh(n: int, cooldown: Cooldown = Cooldown(HOUR)) -> None:
        run_log.begin(n)

    async with open_docket() as docket:
        await docket.add(refresh, key="same")(0)
        await run_with_defaults(docket)
        again = await docket.add(refresh, key="same")(1)
        await run_with_defaults(docket)
        await reaches(again, ExecutionState.CANCELLED)
    assert run_log.began == [0]


class Never(Dependency[None]):
    """Drops every task."""

    async def __aenter__(self) -> None:
        raise AdmissionBlocked(current_execution.get(), "a test", reschedule=False)


async def test_a_run_that_something_else_drops_opens_no_window(run_log: RunLog) -> None:
    async def refused(customer: Annotated[int, Cooldown(HOUR)], gate: Any = Never()) -> None:
        run_log.begin("refused")

    async def refresh(customer: Annotated[int, Cooldown(HOUR)]) -> None:
        run_log.begin("refresh")

    async with open_docket() as docket:
        await docket.add(refused)(1)
        await run_with_defaults(docket)
        await docket.add(refresh)(1)
        await run_with_defaults(docket)
    assert run_log.began == ["refresh"]


async def test_a_run_that_has_to_wait_for_a_slot_or_a_rate_is_not_lost(run_log: RunLog) -> None:
    async def refresh(
        customer: Annotated[int, Cooldown(HOUR)],
        slot: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1),
        rate: RateLimit = RateLimit(3, per=ms(200)),
    ) -> None:
        await run_log.nap(customer, seconds=0.02)

    async with open_docket() as docket:
        for customer in range(8):
            await docket.add(refresh)(customer)
        await run_with_defaults(docket)
        await assert_nothing_is_left(docket)
    assert sorted(run_log.began) == list(range(8))


async def test_a_perpetual_task_that_is_dropped_goes_on(run_log: RunLog) -> None:
    async def tick(cooldown: Cooldown = Cooldown(ms(600)), perpetual: Perpetual = Perpetual()) -> None:
        run_log.begin("tick")

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(tick, key="tick")()
        await eventually(lambda: len(run_log.began) >= 3, "it has run three times")
        await docket.cancel("tick")
    assert all(later - earlier > 0.6 * SURELY for earlier, later in zip(run_log.times, run_log.times[1:], strict=False))


async def test_each_run_of_a_chain_is_judged_by_itself(run_log: RunLog) -> None:
    async def tick(cooldown: Cooldown = Cooldown(HOUR), perpetual: Perpetual = Perpetual()) -> None:
        run_log.begin("tick")

    async with open_docket() as docket, worker_at_work(docket):
        execution = await docket.add(tick, key="tick")()

        async def is_delayed() -> bool:
            await execution.sync()
            return execution.when - docket.now() > HOUR / 2

        await eventually(is_delayed, "the second run was skipped, and the chain goes on after the window")
    assert run_log.began == ["tick"]


class BrokenOnce(CompletionHandler["BrokenOnce"]):
    """Fails after the first run, which is then delivered again later."""

    def __init__(self) -> None:
        self.failed = False

    async def __aenter__(self) -> "BrokenOnce":
        return self

    async def on_complete(self, execution: Execution, outcome: TaskOutcome) -> bool:
        if not self.failed:
            self.failed = True
            raise RuntimeError("a bug")
        return False


async def test_a_cooldown_does_not_drop_its_own_run_when_it_comes_back_at_another_time(run_log: RunLog) -> None:
    broken = BrokenOnce()

    async def refresh(n: int, cooldown: Cooldown = Cooldown(HOUR), handler: BrokenOnce = broken) -> None:
        run_log.begin(n)

    async with open_docket() as docket, worker_at_work(docket, redelivery_timeout=timedelta(seconds=1)):
        execution = await docket.add(refresh)(0)
        await execution.get_result(timeout=WAIT_LIMIT)
    assert run_log.began == [0, 0]


async def test_a_worker_that_is_held_up_does_not_close_the_window_of_the_next_run(
    run_log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hold(customer: Annotated[int, ConcurrencyLimit(1)]) -> None:
        await run_log.hold("hold")

    async def refresh(
        customer: Annotated[int, ConcurrencyLimit(1)], who: str, cooldown: Cooldown = Cooldown(timedelta(seconds=30))
    ) -> None:
        run_log.begin(who)

    async with open_docket() as docket, Docket(docket.name, docket.url) as elsewhere:
        for each in (docket, elsewhere):
            each.register(hold)
            each.register(refresh)
        gate, run_script = asyncio.Event(), docket.server.run

        async def held_up(script: str, *args: Any, **options: Any) -> Any:
            """This worker stalls before whatever it tells the limits on its own account."""
            if script == "give_back":
                await gate.wait()
            return await run_script(script, *args, **options)

        await elsewhere.add(hold)(1)
        async with worker_at_work(elsewhere, concurrency=1):
            await run_log.has("hold")
            monkeypatch.setattr(docket.server, "run", held_up)
            await docket.add(refresh)(1, "first")
            async with worker_at_work(docket, concurrency=1):
                await parked(docket, 1)
                run_log.let_go("hold")
                await run_log.has("first")
                gate.set()
                await asyncio.sleep(0.2)
                second = await elsewhere.add(refresh)(1, "second")
                await reaches(second, ExecutionState.CANCELLED)
    assert run_log.began == ["hold", "first"]


@pytest.mark.parametrize("bad", [timedelta(0), timedelta(seconds=-1)])
def test_a_window_that_is_not_positive_is_refused(bad: timedelta) -> None:
    with pytest.raises(ValueError, match=r"Cooldown\(window="):
        Cooldown(bad)
