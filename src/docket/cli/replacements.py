"""Replaces worker processes that are worn out, without a gap in service."""

from __future__ import annotations

import asyncio
import logging
import time

from docket.cli.worker_process import WorkerProcess

logger: logging.Logger = logging.getLogger("docket.supervisor")

# Between two attempts to replace a process whose replacement does not start.
RETRY_SECONDS = 30.0
# A process works at least this long before it is replaced: a limit that every process exceeds at
# once must not keep the machine busy with starting processes.
LEAST_SECONDS = 10.0

Running = asyncio.Task[int]


async def is_worn_out(process: WorkerProcess, running: Running) -> bool:
    """Waits until the process asks to be replaced, or has ended for good. False in that case."""
    worn_out = asyncio.create_task(process.is_worn_out.wait())
    await asyncio.wait([running, worn_out], return_when=asyncio.FIRST_COMPLETED)
    worn_out.cancel()
    if not running.done():
        age = time.monotonic() - process.working_since
        await asyncio.wait([running], timeout=max(LEAST_SECONDS - age, 0.0))
    return not running.done()


class Replacements:
    """The processes that are on their way: new ones that do not work yet, and old ones that drain.

    One process is replaced at a time, so that processes that grew old together do not restart
    together.
    """

    def __init__(self) -> None:
        self.others: set[WorkerProcess] = set()
        self._leaving: set[Running] = set()
        self._turn = asyncio.Lock()

    async def replace(self, old: WorkerProcess, running: Running) -> tuple[WorkerProcess, Running]:
        """Starts a new process. When it takes work, the old one drains and leaves. If the new one
        does not start, the old one stays, and is replaced later. Returns the process that stays."""
        async with self._turn:
            logger.info("worker %s is replaced: %s", old.name, old.worn_out_because)
            new = WorkerProcess(old.options, keep_trying=False)
            starting = asyncio.create_task(new.keep_running())
            if await self._starts(new, starting, running):
                self._leave(old, running)
                return new, starting
            self._leave(new, starting)
            if not running.done() and not old.is_stopping:
                logger.warning("worker %s could not be replaced; it goes on", old.name)
                await asyncio.wait([running], timeout=RETRY_SECONDS)
                old.is_worn_out.clear()
            return old, running

    async def wait(self) -> None:
        """Returns when the processes that leave have ended."""
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def _starts(self, new: WorkerProcess, starting: Running, running: Running) -> bool:
        """Whether the new process takes work, before the old one has ended for good."""
        self.others.add(new)
        started = asyncio.create_task(new.has_started.wait())
        await asyncio.wait([starting, started, running], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        self.others.discard(new)
        return new.has_started.is_set() and not starting.done() and not new.is_stopping

    def _leave(self, process: WorkerProcess, running: Running) -> None:
        if not process.is_stopping:
            # A second request would cut its runs short.
            process.stop()
        self.others.add(process)
        self._leaving.add(running)
        running.add_done_callback(lambda task: self._left(process, task))

    def _left(self, process: WorkerProcess, task: Running) -> None:
        self.others.discard(process)
        self._leaving.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.warning("worker %s ended with %s", process.name, task.exception())
