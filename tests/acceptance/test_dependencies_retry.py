"""Trying again after a failure, at once or later."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from docket import Docket, Execution, ExecutionState, ExponentialRetry, Retry
from docket.dependencies import ForcedRetry
from docket.testing import Clock
from tests.running import run_everything, running, worker_for
from tests.times import now
from tests.waiting import eventually, reaches


async def test_a_failing_task_is_tried_as_often_as_allowed(docket: Docket) -> None:
    attempts: list[int] = []

    async def burn(retry: Retry = Retry(attempts=3)) -> None:
        attempts.append(retry.attempt)
        raise ValueError("smoke")

    execution = await docket.add(burn)()
    await run_everything(docket)
    await execution.sync()

    assert attempts == [1, 2, 3]
    assert execution.state == ExecutionState.FAILED
    with pytest.raises(ValueError, match="smoke"):
        await execution.get_result()


async def test_a_task_that_succeeds_at_last_is_completed(docket: Docket) -> None:
    async def burn(retry: Retry = Retry(attempts=5)) -> int:
        if retry.attempt < 3:
            raise ValueError("smoke")
        return retry.attempt

    execution = await docket.add(burn)()
    await run_everything(docket)

    assert await execution.get_result() == 3
    assert execution.state == ExecutionState.COMPLETED


async def test_one_attempt_is_all_there_is_by_default(docket: Docket) -> None:
    attempts: list[int] = []

    async def burn(retry: Retry = Retry()) -> None:
        attempts.append(retry.attempt)
        raise ValueError("smoke")

    await docket.add(burn)()
    await run_everything(docket)

    assert attempts == [1]


async def test_a_task_without_retry_is_tried_once(docket: Docket) -> None:
    runs: list[int] = []

    async def burn() -> None:
        runs.append(1)
        raise ValueError("smoke")

    await docket.add(burn)()
    await run_everything(docket)

    assert runs == [1]


async def test_without_a_limit_a_task_is_tried_until_it_succeeds(docket: Docket) -> None:
    async def burn(retry: Retry = Retry(attempts=None)) -> int:
        if retry.attempt < 20:
            raise ValueError("smoke")
        return retry.attempt

    execution = await docket.add(burn)()
    await run_everything(docket)

    assert await execution.get_result() == 20


@pytest.mark.parametrize("kind", [Retry, ExponentialRetry])
async def test_for_ever_tries_until_success(docket: Docket, kind: type[Retry]) -> None:
    policy = kind.forever(timedelta(milliseconds=1))

    async def burn(retry: Retry = policy) -> int:
        if retry.attempt < 6:
            raise ValueError("smoke")
        return retry.attempt

    with Clock(docket):
        execution = await docket.add(burn)()
        await run_everything(docket)

    assert await execution.get_result() == 6


async def test_the_delay_lies_between_the_attempts(docket: Docket) -> None:
    times: list[datetime] = []

    async def burn(retry: Retry = Retry(attempts=3, delay=timedelta(milliseconds=60))) -> None:
        times.append(now())
        raise ValueError("smoke")

    await docket.add(burn)()
    await run_everything(docket)

    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(gaps) == 2
    assert all(timedelta(milliseconds=55) <= gap < timedelta(seconds=2) for gap in gaps)


async def test_a_long_delay_is_kept_to_the_letter(docket: Docket) -> None:
    times: list[datetime] = []

    async def burn(retry: Retry = Retry(attempts=3, delay=timedelta(hours=7))) -> None:
        times.append(docket.now())
        raise ValueError("smoke")

    with Clock(docket):
        await docket.add(burn)()
        await run_everything(docket)

    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert [round(gap / timedelta(hours=7), 4) for gap in gaps] == [1, 1]


async def test_the_execution_waits_as_scheduled_until_its_retry(docket: Docket) -> None:
    async def burn(retry: Retry = Retry(attempts=2, delay=timedelta(hours=1))) -> None:
        raise ValueError("smoke")

    execution = await docket.add(burn, key="k")()
    async with worker_for(docket) as worker, running(worker):

        async def waits() -> bool:
            found = await docket.get_execution("k")
            return found is not None and found.attempt == 2

        await eventually(waits, "the second attempt is scheduled")
        await reaches(execution, ExecutionState.SCHEDULED)


@pytest.mark.parametrize("way", ["after", "in_"])
async def test_a_task_may_put_itself_off(docket: Docket, way: str) -> None:
    times: list[datetime] = []

    async def poll(retry: Retry = Retry(attempts=3)) -> str:
        times.append(docket.now())
        if retry.attempt < 3:
            getattr(retry, way)(timedelta(minutes=retry.attempt))
        return "done"

    with Clock(docket):
        execution = await docket.add(poll)()
        await run_everything(docket)

    assert await execution.get_result() == "done"
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert [round(gap / timedelta(minutes=1), 3) for gap in gaps] == [1, 2]


async def test_a_task_may_put_itself_off_to_a_time(docket: Docket) -> None:
    times: list[datetime] = []

    with Clock(docket) as clock:
        target = clock.now() + timedelta(days=2)

        async def poll(retry: Retry = Retry(attempts=2)) -> None:
            times.append(docket.now())
            if retry.attempt == 1:
                retry.at(target)

        await docket.add(poll)()
        await run_everything(docket)

    assert len(times) == 2
    assert abs(times[1] - target) < timedelta(milliseconds=5)


async def test_putting_off_to_a_past_time_means_at_once(docket: Docket) -> None:
    attempts: list[int] = []

    async def poll(retry: Retry = Retry(attempts=2)) -> None:
        attempts.append(retry.attempt)
        if retry.attempt == 1:
            retry.at(now() - timedelta(days=1))

    await docket.add(poll)()
    await run_everything(docket)

    assert attempts == [1, 2]


async def test_putting_off_raises_forced_retry(docket: Docket) -> None:
    caught: list[BaseException] = []

    async def poll(retry: Retry = Retry(attempts=3)) -> None:
        for wish in (lambda: retry.after(timedelta(hours=1)), lambda: retry.at(now()), lambda: retry.in_(timedelta(1))):
            try:
                wish()
            except ForcedRetry as error:
                caught.append(error)

    execution = await docket.add(poll)()
    await run_everything(docket)
    await execution.sync()

    assert len(caught) == 3
    assert execution.state == ExecutionState.COMPLETED


async def waits_between(docket: Docket, policy: Retry) -> list[float]:
    times: list[datetime] = []

    async def burn(retry: Retry = policy) -> None:
        times.append(docket.now())
        raise ValueError("smoke")

    with Clock(docket):
        await docket.add(burn)()
        await run_everything(docket)
    return [round((later - earlier).total_seconds(), 1) for earlier, later in pairwise(times)]


async def test_the_delay_doubles_up_to_its_maximum(docket: Docket) -> None:
    assert await waits_between(docket, ExponentialRetry(attempts=10)) == [1, 2, 4, 8, 16, 32, 64, 64, 64]


async def test_the_first_and_the_greatest_delay_can_be_chosen(docket: Docket) -> None:
    policy = ExponentialRetry(attempts=6, minimum_delay=timedelta(seconds=3), maximum_delay=timedelta(seconds=20))

    assert await waits_between(docket, policy) == [3, 6, 12, 20, 20]


async def test_an_exponential_retry_tries_once_by_default(docket: Docket) -> None:
    assert await waits_between(docket, ExponentialRetry()) == []


@pytest.mark.parametrize("attempt", [64, 1_100, 50_000])
async def test_a_late_attempt_waits_for_the_maximum_without_overflow(docket: Docket, attempt: int) -> None:
    times: list[datetime] = []

    async def burn(
        retry: ExponentialRetry = ExponentialRetry.forever(timedelta(seconds=1), timedelta(minutes=5)),
    ) -> None:
        times.append(docket.now())
        if retry.attempt == attempt:
            raise ValueError("smoke")

    docket.register(burn)
    with Clock(docket) as clock:
        await docket.schedule(Execution(docket, burn, (), {}, "k", clock.now(), attempt=attempt))
        await run_everything(docket)

    assert len(times) == 2
    assert round((times[1] - times[0]).total_seconds(), 1) == 300


async def test_a_retry_keeps_key_and_arguments(docket: Docket) -> None:
    seen: list[tuple[int, str]] = []

    async def burn(number: int, *, word: str, retry: Retry = Retry(attempts=2)) -> None:
        seen.append((number, word))
        raise ValueError("smoke")

    await docket.add(burn, key="k")(7, word="x")
    await run_everything(docket)

    assert seen == [(7, "x")] * 2


async def test_a_first_delay_above_the_maximum_is_cut_to_it(docket: Docket) -> None:
    policy = ExponentialRetry(attempts=4, minimum_delay=timedelta(minutes=2))

    assert await waits_between(docket, policy) == [64, 64, 64]


@pytest.mark.parametrize("way", ["after", "in_", "at"])
async def test_putting_itself_off_takes_an_attempt(docket: Docket, way: str) -> None:
    attempts: list[int] = []

    async def poll(retry: Retry = Retry(attempts=3)) -> None:
        attempts.append(retry.attempt)
        getattr(retry, way)(now() if way == "at" else timedelta(0))

    execution = await docket.add(poll)()
    await run_everything(docket)

    assert attempts == [1, 2, 3]
    with pytest.raises(ForcedRetry):
        await execution.get_result()


async def test_a_task_that_retries_for_ever_may_put_itself_off_for_ever(docket: Docket) -> None:
    attempts: list[int] = []

    async def poll(retry: Retry = Retry.forever()) -> None:
        attempts.append(retry.attempt)
        if retry.attempt < 10:
            retry.after(timedelta(0))

    await docket.add(poll)()
    await run_everything(docket)

    assert attempts == list(range(1, 11))


@pytest.mark.parametrize(
    ("retry", "delay"),
    [
        (Retry(attempts=2, delay=timedelta(seconds=100), jitter=0.5), 100),
        (ExponentialRetry(attempts=2, minimum_delay=timedelta(seconds=40), jitter=0.5), 40),
    ],
    ids=["constant", "exponential"],
)
async def test_jitter_spreads_the_delays_of_many_tasks_by_its_share(docket: Docket, retry: Retry, delay: float) -> None:
    delays: list[float] = []

    async def burn(begin: datetime, retry: Retry = retry) -> None:
        if retry.attempt == 2:
            delays.append((docket.now() - begin).total_seconds())
        raise ValueError("smoke")

    with Clock(docket) as clock:
        await docket.add_many([docket.call(burn)(clock.now()) for _ in range(40)])
        await run_everything(docket, concurrency=40)

    assert len(delays) == 40
    assert all(delay * 0.5 <= waited <= delay * 1.5 + 1 for waited in delays)
    assert len(set(delays)) > 20, "they do not come back at once"
    assert min(delays) < delay < max(delays), "some earlier, some later"


async def test_without_jitter_all_tasks_wait_for_the_same_time(docket: Docket) -> None:
    delays: set[float] = set()

    async def burn(begin: datetime, retry: Retry = Retry(attempts=2, delay=timedelta(seconds=100))) -> None:
        if retry.attempt == 2:
            delays.add((docket.now() - begin).total_seconds())
        raise ValueError("smoke")

    with Clock(docket) as clock:
        await docket.add_many([docket.call(burn)(clock.now()) for _ in range(10)])
        await run_everything(docket)

    assert delays == {100}


@pytest.mark.parametrize("jitter", [-0.1, 1.1])
def test_a_jitter_that_is_not_a_share_is_refused(jitter: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        Retry(jitter=jitter)
