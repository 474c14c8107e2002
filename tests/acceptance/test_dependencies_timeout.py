"""A limit to how long a task may run."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from docket import Depends, Docket, ExecutionCancelled, ExecutionState, Perpetual, Retry, Timeout, Worker
from tests.running import run_everything, running
from tests.waiting import WAIT_LIMIT, ends, reaches, within

SHORT = timedelta(milliseconds=50)


async def test_a_task_that_takes_too_long_fails_with_a_timeout_error(docket: Docket) -> None:
    async def dawdle(timeout: Timeout = Timeout(SHORT)) -> None:
        await asyncio.sleep(3600)

    execution = await docket.add(dawdle)()
    await within(run_everything(docket))

    with pytest.raises(TimeoutError):
        await execution.get_result()
    assert execution.state == ExecutionState.FAILED


async def test_a_task_that_is_quick_enough_is_left_alone(docket: Docket) -> None:
    async def hurry(timeout: Timeout = Timeout(timedelta(seconds=30))) -> str:
        return "done"

    execution = await docket.add(hurry)()
    await run_everything(docket)

    assert await execution.get_result() == "done"


async def test_a_timeout_may_be_retried(docket: Docket) -> None:
    attempts: list[int] = []

    async def dawdle(timeout: Timeout = Timeout(SHORT), retry: Retry = Retry(attempts=2)) -> str:
        attempts.append(retry.attempt)
        if retry.attempt == 1:
            await asyncio.sleep(30)
        return "done"

    execution = await docket.add(dawdle)()
    await run_everything(docket)

    assert await execution.get_result() == "done"
    assert attempts == [1, 2]


async def test_each_attempt_has_the_whole_time(docket: Docket) -> None:
    remaining: list[timedelta] = []

    async def dawdle(timeout: Timeout = Timeout(SHORT * 4), retry: Retry = Retry(attempts=2)) -> None:
        remaining.append(timeout.remaining())
        await asyncio.sleep(30)

    await docket.add(dawdle)()
    await run_everything(docket)

    assert len(remaining) == 2
    assert all(SHORT * 2 < left <= SHORT * 4 for left in remaining)


async def test_the_remaining_time_shrinks(docket: Docket) -> None:
    remaining: list[timedelta] = []

    async def look(timeout: Timeout = Timeout(timedelta(seconds=10))) -> None:
        remaining.append(timeout.remaining())
        await asyncio.sleep(0.02)
        remaining.append(timeout.remaining())

    await docket.add(look)()
    await run_everything(docket)

    first, second = remaining
    assert timedelta(seconds=9) < second < first <= timedelta(seconds=10)
    assert first - second >= timedelta(milliseconds=15)


async def test_a_task_may_extend_its_time(docket: Docket) -> None:
    async def work(timeout: Timeout = Timeout(SHORT * 2)) -> str:
        timeout.extend(timedelta(seconds=20))
        left = timeout.remaining()
        assert timedelta(seconds=19) < left <= timedelta(seconds=20) + SHORT * 2
        await asyncio.sleep(0.2)
        return "done"

    execution = await docket.add(work)()
    await run_everything(docket)

    assert await execution.get_result() == "done"


async def test_an_extension_without_a_length_is_as_long_as_the_limit(docket: Docket) -> None:
    remaining: list[timedelta] = []

    async def work(timeout: Timeout = Timeout(timedelta(seconds=10))) -> None:
        remaining.append(timeout.remaining())
        timeout.extend()
        remaining.append(timeout.remaining())

    await docket.add(work)()
    await run_everything(docket)

    first, second = remaining
    assert timedelta(seconds=9.5) < second - first <= timedelta(seconds=10)


async def test_an_extended_limit_still_ends_the_task(docket: Docket) -> None:
    async def work(timeout: Timeout = Timeout(SHORT)) -> None:
        timeout.extend(SHORT)
        await asyncio.sleep(30)

    execution = await docket.add(work)()
    await run_everything(docket)

    with pytest.raises(TimeoutError):
        await execution.get_result()


async def test_a_task_may_clean_up_when_its_time_is_over(docket: Docket) -> None:
    cleaned: list[str] = []

    async def work(timeout: Timeout = Timeout(SHORT)) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.append("cleaned")

    await docket.add(work)()
    await run_everything(docket)

    assert cleaned == ["cleaned"]


async def test_dependencies_are_closed_after_a_timeout(docket: Docket) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def session() -> AsyncGenerator[str]:
        try:
            yield "session"
        finally:
            events.append("closed")

    async def work(it: str = Depends(session), timeout: Timeout = Timeout(SHORT)) -> None:
        await asyncio.sleep(30)

    await docket.add(work)()
    await run_everything(docket)

    assert events == ["closed"]


async def test_a_timeout_of_the_tasks_own_making_is_its_own(docket: Docket) -> None:
    async def work(timeout: Timeout = Timeout(timedelta(seconds=30))) -> None:
        raise TimeoutError("the other side did not answer")

    execution = await docket.add(work)()
    await run_everything(docket)

    with pytest.raises(TimeoutError, match="the other side"):
        await execution.get_result()


async def test_a_perpetual_task_goes_on_after_a_timeout(docket: Docket, worker: Worker) -> None:
    runs: list[int] = []

    async def work(timeout: Timeout = Timeout(SHORT), perpetual: Perpetual = Perpetual()) -> None:
        runs.append(1)
        if len(runs) == 1:
            await asyncio.sleep(30)

    await docket.add(work, key="k")()
    await ends(worker.run_at_most({"k": 2}))

    assert len(runs) == 2


async def test_cancelling_a_task_with_a_limit_and_retries_ends_it(docket: Docket, worker: Worker) -> None:
    started = asyncio.Event()
    attempts: list[int] = []

    async def work(timeout: Timeout = Timeout(timedelta(seconds=30)), retry: Retry = Retry(attempts=5)) -> None:
        attempts.append(retry.attempt)
        started.set()
        await asyncio.sleep(30)

    execution = await docket.add(work, key="k")()
    async with running(worker):
        await within(started.wait())
        await docket.cancel("k")
        await reaches(execution, ExecutionState.CANCELLED)

    assert attempts == [1]


async def test_the_body_can_tell_the_timeouts_cancel_from_a_request(docket: Docket, worker: Worker) -> None:
    messages: dict[str, object] = {}
    started = asyncio.Event()

    async def dawdle(name: str) -> None:
        started.set()
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError as error:
            messages[name] = error.args
            raise

    async def has_little_time(timeout: Timeout = Timeout(SHORT)) -> None:
        await dawdle("late")

    async def has_time(timeout: Timeout = Timeout(timedelta(hours=1))) -> None:
        await dawdle("ordered")

    async with running(worker):
        late = await docket.add(has_little_time)()
        await reaches(late, ExecutionState.FAILED)
        started.clear()
        ordered = await docket.add(has_time)()
        await within(started.wait())
        await docket.cancel(ordered.key)
        await reaches(ordered, ExecutionState.CANCELLED)

    assert all(messages.values())
    assert messages["late"] != messages["ordered"]


async def test_a_body_that_swallows_the_end_of_its_time_has_failed_all_the_same(docket: Docket) -> None:
    async def stubborn(timeout: Timeout = Timeout(SHORT)) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            assert timeout.expired()
        return "done"

    execution = await docket.add(stubborn)()
    await run_everything(docket)

    with pytest.raises(TimeoutError, match="stubborn"):
        await execution.get_result()


async def test_what_a_body_raises_when_its_time_is_over_is_its_own_error(docket: Docket) -> None:
    async def convert(timeout: Timeout = Timeout(SHORT)) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            raise ValueError("no answer") from None

    execution = await docket.add(convert)()
    await run_everything(docket)

    with pytest.raises(ValueError, match="no answer"):
        await execution.get_result()


async def test_a_request_to_cancel_stands_when_the_time_ends_meanwhile(docket: Docket, worker: Worker) -> None:
    started = asyncio.Event()
    was_in_time: list[bool] = []

    async def tidy(timeout: Timeout = Timeout(timedelta(milliseconds=300))) -> None:
        started.set()
        try:
            await asyncio.sleep(300)
        finally:
            was_in_time.append(not timeout.expired())
            while not timeout.expired():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)

    async def cancelled() -> BaseException:
        started.clear()
        execution = await docket.add(tidy)()
        await within(started.wait())
        await docket.cancel(execution.key)
        with pytest.raises((ExecutionCancelled, TimeoutError)) as raised:
            await execution.get_result(timeout=WAIT_LIMIT)
        return raised.value

    async with running(worker):
        error = await cancelled()
        # On a busy machine the time may be over before the request arrives.
        while True not in was_in_time:
            error = await cancelled()
    assert isinstance(error, ExecutionCancelled)
