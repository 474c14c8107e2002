"""Workers that run beside a test, or until all work is done."""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from docket import Docket, Worker

from .waiting import SECONDS, ends, eventually

TICK = timedelta(milliseconds=5)
_numbers = itertools.count()


def worker_for(docket: Docket, **options: Any) -> Worker:
    """A worker that looks at the schedule often, so that tests with future work are quick."""
    settings: dict[str, Any] = {"minimum_check_interval": TICK, "scheduling_resolution": TICK}
    return Worker(docket, **settings | options)


async def run_everything(docket: Docket, **options: Any) -> None:
    """Runs all tasks, future ones included, on a worker of `worker_for`."""
    async with worker_for(docket, **options) as worker:
        await ends(worker.run_until_finished())


async def run_with_defaults(docket: Docket, **options: Any) -> None:
    """Runs all tasks, future ones included, on a worker with the default settings."""
    async with Worker(docket, **options) as worker:
        await ends(worker.run_until_finished())


@asynccontextmanager
async def running(worker: Worker) -> "AsyncGenerator[asyncio.Task[None]]":
    """A worker that runs beside the test. It is cancelled at the end."""
    run = asyncio.create_task(worker.run_forever(), name="a worker's run in a test")
    try:
        yield run
    finally:
        await cancelled(run)


async def cancelled(run: "asyncio.Task[None]", seconds: float = SECONDS) -> None:
    """Cancels a worker's run and waits for its end; what it raises comes out."""
    run.cancel()
    _, pending = await asyncio.wait([run], timeout=seconds)
    assert not pending, f"the worker did not stop within {seconds:g} s"
    await run


@asynccontextmanager
async def at_work(*workers: Worker) -> AsyncGenerator[None]:
    """Workers that run beside the test, from the moment when
    all of them work. They are told to stop at the end."""
    tasks = [asyncio.create_task(worker.run_forever()) for worker in workers]
    try:
        await eventually(
            lambda: all(worker.is_working for worker in workers) or any(task.done() for task in tasks),
            "the workers work",
        )
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*(ends(task) for task in tasks))


@asynccontextmanager
async def worker_at_work(docket: Docket, **options: Any) -> AsyncGenerator[Worker]:
    """A new worker that runs beside the test, from the moment when the fleet lists it."""

    async def is_listed() -> bool:
        return worker.name in {info.name for info in await docket.workers()}

    async with Worker(docket, name=f"worker-{next(_numbers)}", **options) as worker, at_work(worker):
        await eventually(is_listed, f"{worker.name} is listed")
        yield worker
