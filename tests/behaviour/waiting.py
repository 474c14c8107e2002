"""Ways to wait for something to happen, with a deadline."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from docket import Worker

PATIENCE = 90.0


async def eventually(holds: Callable[[], bool], *, within: float = PATIENCE) -> None:
    """For what no event tells of."""
    async with asyncio.timeout(within):
        while not holds():
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def at_work(*workers: Worker) -> AsyncGenerator[None]:
    """Workers that run beside the test and stop at its end."""
    tasks = [asyncio.create_task(worker.run_forever()) for worker in workers]
    try:
        await eventually(lambda: all(worker.is_working for worker in workers) or any(task.done() for task in tasks))
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)
