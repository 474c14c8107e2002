"""Waiting for a task's result."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any

import pytest

from docket import Docket, Execution, ExecutionCancelled, ExecutionState, Perpetual, Worker
from docket.errors import ResultExpired, TaskFailed, Unserializable
from tests.nodes import flattened, on_every_node
from tests.running import run_everything, running, worker_for
from tests.times import later, now, soon
from tests.waiting import SECONDS, WAIT_LIMIT, eventually, within


async def answer() -> int:
    return 42


class Smoke(Exception):
    """An exception of the user's own."""


async def burn() -> None:
    raise Smoke("in the kitchen", 3)


async def test_the_result_of_a_finished_task_comes_back(docket: Docket) -> None:
    execution = await docket.add(answer)()
    await run_everything(docket)

    assert await within(execution.get_result()) == 42


async def test_waiting_ends_when_the_task_does(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(answer, when=soon())()
    waiter = asyncio.create_task(execution.get_result())
    async with running(worker):
        assert await within(waiter) == 42


async def test_many_may_wait_for_one_task(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(answer, when=soon())()
    waiters = [asyncio.create_task(execution.get_result()) for _ in range(5)]
    async with running(worker):
        assert await within(asyncio.gather(*waiters)) == [42] * 5


async def test_the_result_can_be_asked_for_from_elsewhere(docket: Docket) -> None:
    await docket.add(answer, key="k")()
    await run_everything(docket)

    async with Docket(name=docket.name, url=docket.url) as elsewhere:
        execution = await elsewhere.get_execution("k")

        assert execution is not None
        assert await within(execution.get_result()) == 42


async def test_a_result_may_be_any_object_that_can_be_pickled(docket: Docket) -> None:
    async def measure() -> dict[str, object]:
        return {"when": timedelta(seconds=3), "how": (1, {2})}

    execution = await docket.add(measure)()
    await run_everything(docket)

    assert await execution.get_result() == {"when": timedelta(seconds=3), "how": (1, {2})}


async def test_a_task_that_returns_nothing_gives_none(docket: Docket) -> None:
    async def nothing() -> None: ...

    execution = await docket.add(nothing)()
    await run_everything(docket)

    assert await within(execution.get_result()) is None


async def test_the_tasks_own_exception_comes_back(docket: Docket) -> None:
    execution = await docket.add(burn)()
    await run_everything(docket)

    with pytest.raises(Smoke) as caught:
        await within(execution.get_result())
    assert caught.value.args == ("in the kitchen", 3)


async def test_an_exception_that_cannot_be_pickled_still_ends_the_waiting(docket: Docket) -> None:
    class Stubborn(Exception):
        def __reduce__(self) -> str:
            raise TypeError("not me")

    async def fail_stubbornly() -> None:
        raise Stubborn("stuck")

    execution = await docket.add(fail_stubbornly)()
    await run_everything(docket)

    with pytest.raises(TaskFailed, match="stuck"):
        await within(execution.get_result())
    assert execution.state == ExecutionState.FAILED


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt("ctrl-c"), "KeyboardInterrupt: ctrl-c"),
        (GeneratorExit(), "GeneratorExit"),
        (BaseExceptionGroup("several", [ValueError("a"), SystemExit(4)]), "ValueError: a, SystemExit: 4"),
        (BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [SystemExit(5)])]), "SystemExit: 5"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_body_that_exits_fails_with_an_ordinary_error_that_names_it(
    docket: Docket, raised: BaseException, shown: str
) -> None:
    async def leave() -> None:
        raise raised

    execution = await docket.add(leave)()
    await run_everything(docket)

    caught: Exception | None = None
    try:
        await within(execution.get_result())
    except Exception as error:
        caught = error
    assert isinstance(caught, TaskFailed)
    assert shown in str(caught)


async def test_a_result_that_cannot_be_pickled_fails_the_task(docket: Docket) -> None:
    async def generate() -> object:
        return (n for n in range(3))

    execution = await docket.add(generate)()
    await run_everything(docket)

    with pytest.raises(Unserializable, match="pickle"):
        await within(execution.get_result())


async def test_a_cancelled_task_raises_execution_cancelled(docket: Docket) -> None:
    execution = await docket.add(answer, when=later())()
    await docket.cancel(execution.key)

    with pytest.raises(ExecutionCancelled):
        await within(execution.get_result())


async def test_waiting_longer_than_the_timeout_is_a_timeout_error(docket: Docket) -> None:
    execution = await docket.add(answer, when=later())()

    with pytest.raises(TimeoutError):
        await execution.get_result(timeout=timedelta(milliseconds=20))


async def test_waiting_past_the_deadline_is_a_timeout_error(docket: Docket) -> None:
    execution = await docket.add(answer, when=later())()

    with pytest.raises(TimeoutError):
        await execution.get_result(deadline=soon(20))


async def test_two_limits_at_once_are_refused(docket: Docket) -> None:
    execution = await docket.add(answer)()

    with pytest.raises(ValueError, match=r"timeout.*deadline|deadline.*timeout"):
        await execution.get_result(timeout=timedelta(seconds=1), deadline=later())


async def test_a_result_in_time_is_returned_despite_a_limit(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(answer)()
    async with running(worker):
        assert await execution.get_result(timeout=WAIT_LIMIT) == 42
        assert await execution.get_result(deadline=now() + timedelta(seconds=10)) == 42


async def test_waiting_for_a_task_that_keeps_no_record_raises_instead_of_waiting_for_ever(name: str, url: str) -> None:
    async with Docket(name=name, url=url, execution_ttl=timedelta(0)) as docket:
        execution = await docket.add(answer)()
        waiter = asyncio.create_task(execution.get_result())
        await run_everything(docket)

        _, pending = await asyncio.wait([waiter], timeout=SECONDS)
        waiter.cancel()

        assert not pending
        if (error := waiter.exception()) is not None:
            assert isinstance(error, ResultExpired)
        else:
            assert waiter.result() == 42


@pytest.mark.parametrize(
    "limit", [lambda: {"timeout": timedelta(minutes=1)}, lambda: {"deadline": later()}], ids=["timeout", "deadline"]
)
async def test_waiting_for_a_task_without_a_record_times_out(
    name: str, url: str, limit: Callable[[], dict[str, Any]]
) -> None:
    async with Docket(name=name, url=url, execution_ttl=timedelta(0)) as docket:
        execution = await docket.add(answer)()
        await run_everything(docket)

        with pytest.raises(ResultExpired) as caught:
            await execution.get_result(**limit())

    assert isinstance(caught.value, TimeoutError)


async def test_asking_for_a_result_whose_record_expired_raises(name: str, url: str) -> None:
    async with Docket(name=name, url=url, execution_ttl=timedelta(milliseconds=50)) as docket:
        execution = await docket.add(answer, key="k")()
        await run_everything(docket)

        async def is_gone() -> bool:
            return await docket.get_execution("k") is None

        await eventually(is_gone, "the record is gone")
        with pytest.raises(ResultExpired, match="'k'"):
            await within(execution.get_result(timeout=timedelta(hours=1)))


# A docket that keeps no records tells those who listen


@pytest.fixture
async def forgetful(name: str, url: str) -> AsyncGenerator[Docket]:
    async with Docket(name=name, url=url, execution_ttl=timedelta(0)) as docket:
        yield docket


async def listening_for(execution: Execution[Any]) -> "asyncio.Task[Any]":
    """A waiter that is known to listen."""
    docket = execution.docket
    waiter = asyncio.create_task(execution.get_result())
    channel = docket.ledger.keys.task_channel(execution.key)

    async def is_heard() -> bool:
        answers = await on_every_node(docket, "PUBSUB", "NUMSUB", channel)
        return any(isinstance(part, int) and part > 0 for part in flattened(answers))

    await eventually(is_heard, "somebody listens on the task's channel")
    # The look that follows the subscription is answered before this one.
    await docket.get_execution(execution.key)
    return waiter


async def test_a_waiter_learns_of_a_cancel_where_no_record_is_kept(forgetful: Docket) -> None:
    waiter = await listening_for(await forgetful.add(answer, key="k", when=later())())
    await forgetful.cancel("k")

    with pytest.raises(ExecutionCancelled):
        await within(waiter)


async def test_a_waiter_learns_of_the_cancel_of_a_run_where_no_record_is_kept(forgetful: Docket) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    execution = await forgetful.add(work, key="k")()
    async with worker_for(forgetful) as worker, running(worker):
        await within(begun.wait())
        waiter = await listening_for(execution)
        await forgetful.cancel("k")

        with pytest.raises(ExecutionCancelled):
            await within(waiter)


@pytest.mark.parametrize("value", ["last", "x" * 3_000, "x" * 100_000], ids=["small", "medium", "large"])
async def test_a_waiter_gets_the_value_of_a_chains_last_run_where_no_record_is_kept(
    forgetful: Docket, value: str
) -> None:
    async def work(perpetual: Perpetual = Perpetual()) -> str:
        perpetual.cancel()
        return value

    waiter = await listening_for(await forgetful.add(work, when=soon(300))())
    await run_everything(forgetful)

    assert await within(waiter) == value


async def test_a_waiter_gets_value_and_failure_of_a_plain_task_where_no_record_is_kept(forgetful: Docket) -> None:
    good = await listening_for(await forgetful.add(answer, when=soon(300))())
    bad = await listening_for(await forgetful.add(burn, when=soon(300))())
    await run_everything(forgetful)

    assert await within(good) == 42
    with pytest.raises(Smoke):
        await within(bad)


async def followed(execution: Execution) -> tuple[list[ExecutionState], "asyncio.Task[None]"]:
    """The states of a task as they come, and the subscription, which ends with the task."""
    states: list[ExecutionState] = []
    ready = asyncio.Event()

    async def follow() -> None:
        async for event in execution.subscribe(ready):
            if event["type"] == "state":
                states.append(event["state"])

    follower = asyncio.create_task(follow())
    await within(ready.wait())
    return states, follower


async def test_a_value_that_cannot_be_stored_fails_only_its_waiter_where_no_record_is_kept(forgetful: Docket) -> None:
    async def work() -> Any:
        return (number for number in range(3))

    execution = await forgetful.add(work, when=soon(300))()
    states, follower = await followed(execution)
    waiter = await listening_for(execution)
    await run_everything(forgetful)
    await within(follower)

    assert states[-1] is ExecutionState.COMPLETED
    with pytest.raises(Unserializable):
        await within(waiter)


async def test_an_earlier_ending_that_arrives_late_is_not_taken_for_the_tasks_own(forgetful: Docket) -> None:
    """Without records, the generation of a key starts again:
    the subscription delivers the first task's ending again."""
    heard: list[bytes] = []
    channel = forgetful.ledger.keys.task_channel("k")
    await forgetful.subscriptions.listen(channel, heard.append)
    await forgetful.add(answer, key="k", when=later())()
    await forgetful.cancel("k")

    await eventually(lambda: any(b"cancelled" in message for message in heard), "the cancellation is announced")
    execution = await forgetful.add(answer, key="k", when=soon(500))()
    states, follower = await followed(execution)
    waiter = await listening_for(execution)
    async with forgetful.redis() as redis:
        await redis.publish(channel, next(message for message in heard if b"cancelled" in message))
    await run_everything(forgetful)
    await within(follower)

    assert await within(waiter) == 42
    assert ExecutionState.CANCELLED not in states
    assert states[-1] is ExecutionState.COMPLETED
