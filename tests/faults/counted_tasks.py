"""A worker in this process with something to do, for tests that harm its server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from docket import CurrentExecution, Docket, Execution, Worker
from docket.errors import ServerFull, ServerUnreachable
from tests.waiting import ends, eventually


class CountedTasks:
    """Counts how often each task started and finished; some run until they are released."""

    def __init__(self, docket: Docket) -> None:
        self.docket = docket
        self.starts: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()
        self.release = asyncio.Event()
        docket.register(self.short)
        docket.register(self.long)

    async def add(self, key: str) -> Execution:
        """Adds a short task."""
        return await self.docket.add(self.short, key=key)()

    async def hold(self, key: str) -> Execution:
        """Adds a task that runs until `release` is set, and returns when it runs."""
        before = self.starts[key]
        execution = await self.docket.add(self.long, key=key)()
        await eventually(lambda: self.starts[key] > before, f"{key} runs")
        return execution

    async def works(self, key: str) -> None:
        """Returns when the worker runs something new, however often the server has to be asked."""
        execution: Execution | None = None

        async def done() -> bool:
            nonlocal execution
            try:
                if execution is None:
                    execution = await self.add(key)
                await execution.sync()
                return execution.state.finished
            except (ServerUnreachable, ServerFull):
                return False

        await eventually(done, f"{key} has run")

    async def short(self, execution: Execution = CurrentExecution()) -> str:
        self.starts[execution.key] += 1
        self.finished[execution.key] += 1
        return execution.key

    async def long(self, execution: Execution = CurrentExecution()) -> str:
        self.starts[execution.key] += 1
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled[execution.key] += 1
            raise
        self.finished[execution.key] += 1
        return execution.key


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """The worker runs meanwhile; at the end it stops by itself, well."""
    task = asyncio.create_task(worker.run_forever())
    try:
        yield task
    finally:
        alive = not task.done()
        task.cancel()
        await ends(task)
    assert alive, "the worker has worked to the end"
