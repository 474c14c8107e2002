"""Ways to wait for something to happen, with a deadline."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from docket import Docket, Execution, ExecutionState, Worker

T = TypeVar("T")

PATIENCE = timedelta(seconds=60)
TICK = timedelta(milliseconds=5)


def now() -> datetime:
    return datetime.now(UTC)


def soon(milliseconds: float = 50) -> datetime:
    return now() + timedelta(milliseconds=milliseconds)


def later() -> datetime:
    """So far away that no test sees it."""
    return now() + timedelta(hours=1)


def worker_for(docket: Docket, **options: Any) -> Worker:
    """A worker that looks at the schedule often, so that tests with future work are quick."""
    settings: dict[str, Any] = {"minimum_check_interval": TICK, "scheduling_resolution": TICK}
    return Worker(docket, **settings | options)


async def within(awaitable: Awaitable[T], limit: timedelta = PATIENCE) -> T:
    async with asyncio.timeout(limit.total_seconds()):
        return await awaitable


async def ends(run: Coroutine[Any, Any, None], limit: timedelta = PATIENCE) -> None:
    """Wait for a worker's run to end by itself.

    A worker takes a cancellation as the wish to stop and returns, so a plain time-out round it would go unnoticed.
    """
    task = asyncio.create_task(run, name="a worker's run in a test")
    _, pending = await asyncio.wait([task], timeout=limit.total_seconds())
    if pending:
        task.cancel()
        await asyncio.wait([task], timeout=limit.total_seconds())
        raise AssertionError(f"the worker did not end within {limit.total_seconds()} s")
    await task


async def run_everything(docket: Docket, **options: Any) -> None:
    """Run all there is, future work included."""
    async with worker_for(docket, **options) as worker:
        await ends(worker.run_until_finished())


async def eventually(holds: Callable[[], Awaitable[bool]], limit: timedelta = PATIENCE) -> None:
    """Ask again and again until it holds; for what no event tells of."""
    async with asyncio.timeout(limit.total_seconds()):
        while not await holds():  # what is asked about lives on a server
            await asyncio.sleep(0.01)


async def reaches(execution: Execution, state: ExecutionState) -> None:
    async def is_there() -> bool:
        await execution.sync()
        return execution.state == state

    await eventually(is_there)


async def waits(docket: Docket, key: str) -> Execution:
    """The task that waits under this key, once it is there."""
    found: list[Execution] = []

    async def is_there() -> bool:
        execution = await docket.get_execution(key)
        if execution is not None and execution.state == ExecutionState.SCHEDULED:
            found.append(execution)
        return bool(found)

    await eventually(is_there)
    return found[0]


async def stopped(run: "asyncio.Task[None]", limit: timedelta = PATIENCE) -> None:
    """Cancel a worker's run and wait for its end; what it raises comes out."""
    run.cancel()
    _, pending = await asyncio.wait([run], timeout=limit.total_seconds())
    assert not pending, f"the worker did not stop within {limit.total_seconds()} s"
    await run


@asynccontextmanager
async def running(worker: Worker) -> "AsyncGenerator[asyncio.Task[None]]":
    """A worker that runs for ever beside the test, and is stopped at its end."""
    run = asyncio.create_task(worker.run_forever(), name="a worker's run in a test")
    try:
        yield run
    finally:
        await stopped(run)
