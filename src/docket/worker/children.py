"""The child processes of a worker. They are kept warm, and replaced when they are worn out."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from docket.child.settings import ChildSettings, settings_for
from docket.dependencies import Process

from .child_process import ChildProcess

if TYPE_CHECKING:
    from docket.docket import Docket

logger: logging.Logger = logging.getLogger("docket.worker")

# A worker that could not start a child counts as unhealthy for this long, unless it starts one.
PROBLEM_SECONDS = 60.0


def available_processors() -> int:
    """The processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class Children:
    """At most `count` children, each with one run at a time. A child starts when a run needs it,
    and another one in its place as soon as it has ended, so that the next run finds it warm."""

    def __init__(self, count: int, docket: Docket, is_stopping: Callable[[], bool]) -> None:
        self.count: int = count
        self._docket = docket
        self._is_stopping = is_stopping
        self._settings: ChildSettings | None = None
        self._idle: list[ChildProcess] = []
        # Children that start in the place of others. busy + idle + spares <= count
        self._spares: list[asyncio.Task[ChildProcess]] = []
        self._all: set[ChildProcess] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._busy = 0
        # Why the system could not start the last child, and when.
        self._failure: str | None = None
        self._failed_at = 0.0
        # Runs that wait for a child.
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, function_name: str) -> ChildProcess:
        """An idle child, if possible one that has run the function before. Raises NeverBegan or
        OSError if no child can be started."""
        if self._busy >= self.count:
            await self._wait_for_turn()
        else:
            self._busy += 1
        try:
            child = self._take_idle(function_name)
            if child is None:
                child = await (self._take_spare() if self._spares else self._start())
            return child
        except BaseException:
            self._end_turn()
            raise

    def give_back(self, child: ChildProcess, process: Process, memory: int) -> None:
        """The run has ended. `memory` is what the child holds now."""
        if child.is_alive and not process.is_worn_out(child.runs, memory):
            self._idle.append(child)
        else:
            self._retire(child)
            if not self._is_stopping():
                self._start_spare()
        self._end_turn()

    async def close(self) -> None:
        """Ends all children. No run is left by now."""
        spares, self._spares = self._spares, []
        for spare in spares:
            spare.cancel()
        if spares:
            await asyncio.wait(spares)
        for child in list(self._all):
            self._retire(child)
        if self._closing:
            await asyncio.wait(self._closing)

    # Turns

    async def _wait_for_turn(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._end_turn()
            raise

    def _end_turn(self) -> None:
        """Passes the turn on to the first run that waits."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self._busy -= 1

    # Children

    def _take_idle(self, function_name: str) -> ChildProcess | None:
        for child in [child for child in self._idle if not child.is_alive]:
            self._idle.remove(child)
            self._retire(child)
        if not self._idle:
            return None
        familiar = next((child for child in reversed(self._idle) if child.last_function == function_name), None)
        child = familiar or self._idle[-1]
        self._idle.remove(child)
        return child

    async def _take_spare(self) -> ChildProcess:
        spare = self._spares.pop(0)
        try:
            await asyncio.wait([spare])
        except asyncio.CancelledError:
            self._spares.append(spare)
            if spare.done():
                self._spare_started(spare)
            raise
        return spare.result()

    async def _start(self) -> ChildProcess:
        if self._settings is None:
            self._settings = settings_for(self._docket)
        child = ChildProcess()
        self._all.add(child)
        try:
            await child.start(self._settings)
        except BaseException as error:
            if isinstance(error, OSError):
                self._failure, self._failed_at = str(error), time.monotonic()
            self._retire(child)
            raise
        self._failure = None
        return child

    @property
    def busy(self) -> int:
        """How many children have a run."""
        return self._busy

    @property
    def problem(self) -> str | None:
        """Why no child could be started lately."""
        failure = self._failure
        return failure if failure is not None and time.monotonic() - self._failed_at < PROBLEM_SECONDS else None

    def _start_spare(self) -> None:
        spare = asyncio.get_running_loop().create_task(self._start(), name=f"{self._docket.name} - starting a child")
        self._spares.append(spare)
        spare.add_done_callback(self._spare_started)

    def _spare_started(self, spare: asyncio.Task[ChildProcess]) -> None:
        """Nobody has taken it so far, unless it is not in the list."""
        if spare not in self._spares:
            return
        self._spares.remove(spare)
        if spare.cancelled():
            return
        error = spare.exception()
        if error is None:
            self._idle.append(spare.result())
        else:
            logger.warning("a child process could not be started: %s", error)

    def _retire(self, child: ChildProcess) -> None:
        """Ends a child. It is forgotten when it has ended."""
        if child in self._all:
            self._all.discard(child)
            closing = asyncio.get_running_loop().create_task(child.close(), name=f"docket - ending child:{child.pid}")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
