"""Each run of a task that repeats ends visibly, for those
who follow the task and those who wait for a result."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from docket import (
    CurrentExecution,
    Docket,
    Execution,
    ExecutionState,
    Perpetual,
    RateLimit,
    Retry,
    Unserializable,
    Worker,
)
from docket.execution import StateEvent
from tests.nodes import flattened, on_every_node
from tests.running import running
from tests.times import later
from tests.waiting import eventually, wait_until_scheduled, within

T = TypeVar("T")

HOUR = timedelta(hours=1)
LARGE = 200_000


@pytest.fixture(params=[timedelta(minutes=15), timedelta(0)], ids=["kept", "ttl 0"])
async def docket(name: str, url: str, request: pytest.FixtureRequest) -> AsyncGenerator[Docket]:
    async with Docket(name=name, url=url, execution_ttl=request.param) as docket:
        yield docket


async def follow(execution: Execution, ready: asyncio.Event, runs: int = 1) -> list[StateEvent]:
    """The states of a task until it waits again after
    so many runs, without what came before the first."""
    seen: list[StateEvent] = []
    async with aclosing(execution.subscribe(ready)) as events:
        async for event in events:
            if event["type"] == "state" and (seen or event["state"] is ExecutionState.RUNNING):
                if event["state"] is ExecutionState.RUNNING:
                    runs -= 1
                seen.append(event)
                if not runs and event["state"] in (ExecutionState.SCHEDULED, ExecutionState.QUEUED):
                    return seen
    raise AssertionError("the events ended early")


async def following(execution: Execution, runs: int = 1) -> asyncio.Task[list[StateEvent]]:
    ready = asyncio.Event()
    follower = asyncio.create_task(follow(execution, ready, runs))
    await within(ready.wait())
    return follower


async def waiting(execution: Execution[T]) -> asyncio.Task[T]:
    """Somebody who waits for a result, and hears whatever is said from now on."""
    waiter = asyncio.create_task(execution.get_result())
    await eventually(lambda: _is_heard(execution.docket, execution.key), "somebody listens on the task's channel")
    return waiter


def states(events: list[StateEvent]) -> list[str]:
    return [event["state"].value for event in events]


async def test_each_run_shows_its_ending_before_the_next_one_waits(docket: Docket, worker: Worker) -> None:
    async def tick(number: int, perpetual: Perpetual = Perpetual()) -> None:
        perpetual.after(timedelta(0) if number == 1 else HOUR)
        perpetual.perpetuate(number + 1)

    follower = await following(await docket.add(tick)(1), runs=2)
    async with running(worker):
        events = await within(follower)

    assert states(events) == ["running", "completed", "queued", "running", "completed", "scheduled"]
    ending = events[1]
    assert ending["worker"] == worker.name
    assert ending["started_at"] is not None
    assert ending["completed_at"] is not None
    assert ending["error"] is None
    assert events[-1]["completed_at"] is None


async def test_a_run_that_fails_shows_its_error(docket: Docket, worker: Worker) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> None:
        raise ValueError("smoke")

    follower = await following(await docket.add(tick)())
    async with running(worker):
        events = await within(follower)

    assert states(events) == ["running", "failed", "scheduled"]
    assert events[1]["error"] == "ValueError: smoke"
    assert events[2]["error"] is None


async def test_a_retry_shows_no_ending(docket: Docket, worker: Worker) -> None:
    async def tick(retry: Retry = Retry(attempts=2), perpetual: Perpetual = Perpetual(every=HOUR)) -> None:
        raise ValueError("smoke")

    follower = await following(await docket.add(tick)(), runs=2)
    async with running(worker):
        events = await within(follower)

    assert states(events) == ["running", "queued", "running", "failed", "scheduled"]


async def test_a_run_that_a_limit_skips_shows_no_ending(docket: Docket, worker: Worker) -> None:
    async def tick(
        rate: RateLimit = RateLimit(1, per=timedelta(minutes=1), drop=True),
        perpetual: Perpetual = Perpetual(),
    ) -> None: ...

    follower = await following(await docket.add(tick)(), runs=2)
    async with running(worker):
        events = await within(follower)

    assert states(events) == ["running", "completed", "queued", "running", "scheduled"]


async def test_the_result_is_that_of_the_run_that_was_waited_for(docket: Docket, worker: Worker) -> None:
    async def count(number: int, perpetual: Perpetual = Perpetual(every=HOUR)) -> int:
        perpetual.perpetuate(number + 1)
        return number

    execution = await docket.add(count, key="k")(1)
    waiter = await waiting(execution)
    async with running(worker):
        assert await within(waiter) == 1
        assert execution.state is ExecutionState.COMPLETED
        await wait_until_scheduled(docket, "k")
        waiter = await waiting(execution)
        await docket.replace(count, docket.now(), "k")(10)
        assert await within(waiter) == 10


async def test_the_exception_is_that_of_the_run_that_was_waited_for(docket: Docket, worker: Worker) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> None:
        raise ValueError("smoke")

    execution = await docket.add(tick)()
    waiter = await waiting(execution)
    async with running(worker):
        with pytest.raises(ValueError, match="smoke"):
            await within(waiter)

    assert execution.state is ExecutionState.FAILED
    assert execution.error == "ValueError: smoke"


async def test_a_task_that_schedules_itself_again_shows_its_endings_too(docket: Docket, worker: Worker) -> None:
    async def tick(execution: Execution = CurrentExecution()) -> str:
        execution.when = later()
        await execution.schedule()
        return "done"

    execution = await docket.add(tick)()
    follower, waiter = await following(execution), await waiting(execution)
    async with running(worker):
        assert await within(waiter) == "done"
        events = await within(follower)

    assert states(events) == ["running", "completed", "scheduled"]


async def test_a_manual_run_that_goes_on_shows_its_ending(docket: Docket) -> None:
    async def tick() -> None: ...

    execution = await docket.add(tick, key="k")()
    follower = await following(execution)
    waiter = await waiting(await docket.add(tick, key="k")())
    assert await execution.claim("me")
    execution.when = later()
    await execution.schedule()
    await execution.mark_as_failed("smoke")

    assert states(await within(follower)) == ["running", "failed", "scheduled"]
    with pytest.raises(Exception, match="smoke"):
        await within(waiter)
    assert execution.state is ExecutionState.SCHEDULED


async def test_a_run_that_was_replaced_shows_no_ending(docket: Docket, worker: Worker) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def tick(number: int, perpetual: Perpetual = Perpetual(every=HOUR)) -> int:
        started.set()
        if number == 1:
            await finish.wait()
        return number

    execution = await docket.add(tick, key="k")(1)
    follower, waiter = await following(execution, runs=2), await waiting(execution)
    async with running(worker):
        await within(started.wait())
        await docket.replace(tick, later(), "k")(2)
        finish.set()
        await docket.replace(tick, docket.now(), "k")(3)
        events = await within(follower)
        result = await within(waiter)

    assert states(events) == ["running", "scheduled", "queued", "running", "completed", "scheduled"]
    assert result == 3


async def test_a_waiter_that_missed_the_ending_gets_that_of_the_next_run(
    docket: Docket, name: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    gates = [asyncio.Event(), asyncio.Event()]

    async def tick(perpetual: Perpetual = Perpetual()) -> int:
        runs.append(len(runs) + 1)
        if len(runs) > len(gates):
            perpetual.cancel()
            return 0
        await gates[len(runs) - 1].wait()
        return len(runs)

    connected, connect = asyncio.Event(), docket.server.subscription_pipeline

    async def connect_later(*arguments: Any) -> Any:
        await connected.wait()
        return await connect(*arguments)

    async with Docket(name=name, url=url) as other, Worker(other) as worker, running(worker):
        other.register(tick)
        execution = await docket.add(tick, key="k")()
        waiter = await waiting(execution)
        await eventually(lambda: runs == [1], "the first run has begun")
        monkeypatch.setattr(docket.server, "subscription_pipeline", connect_later)
        await on_every_node(other, "CLIENT", "KILL", "TYPE", "pubsub")
        gates[0].set()
        await eventually(lambda: runs == [1, 2], "the second run has begun")
        connected.set()
        await eventually(lambda: _is_heard(other, "k"), "the other docket listens on the task's channel")
        gates[1].set()

        assert await within(waiter) == 2


async def test_a_large_result_reaches_those_who_wait(docket: Docket, worker: Worker) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> bytes:
        return b"x" * LARGE

    execution = await docket.add(tick)()
    waiter = await waiting(execution)
    async with running(worker):
        assert await within(waiter) == b"x" * LARGE


# On a cluster a node knows only its own listeners, so the result is stored for a while.
@pytest.mark.one_server
async def test_a_large_result_that_nobody_waits_for_is_stored_nowhere(docket: Docket, worker: Worker) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> bytes:
        return b"x" * LARGE

    await docket.add(tick, key="k")()
    async with running(worker):
        await wait_until_scheduled(docket, "k")

    async with docket.redis() as redis:
        keys = [key async for key in redis.scan_iter(match=b"*payload*")]
    assert keys == []


async def test_a_result_that_cannot_be_stored_does_not_end_the_chain(docket: Docket, worker: Worker) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> object:
        return asyncio.get_running_loop()

    execution = await docket.add(tick, key="k")()
    follower, waiter = await following(execution), await waiting(execution)
    async with running(worker):
        events = await within(follower)
        with pytest.raises(Unserializable):
            await within(waiter)

    assert states(events) == ["running", "completed", "scheduled"]


async def _is_heard(docket: Docket, key: str) -> bool:
    replies = await on_every_node(docket, "PUBSUB", "NUMSUB", docket.keys.task_channel(key))
    return any(list(flattened(reply))[1] for reply in replies)
