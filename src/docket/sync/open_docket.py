"""One opening of a docket in one process: the docket of the background loop and the calls that use
it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from docket._aio import cancel_and_wait
from docket.docket import Docket
from docket.errors import NotOpen
from docket.execution import Execution
from docket.scheduler import Prepared, Scheduler

from .background_loop import LoopThread, this_process
from .caller_adds import CallerAdds

T = TypeVar("T")

# How long the exit of the process may wait for the server.
EXIT_SECONDS = 2.0


class OpenDocket:
    """Runs calls on an open docket of the background loop."""

    def __init__(self, docket: Docket, loop_thread: LoopThread) -> None:
        self.docket: Docket = docket
        self._loop_thread = loop_thread
        self._pid = os.getpid()
        self._caller_adds = CallerAdds(docket, loop_thread)
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_closing = False
        # Kept, because the event loop itself does not.
        self._started: set[asyncio.Task[object]] = set()

    async def open(self) -> None:
        await self.docket.__aenter__()
        this_process.sessions.add(self)

    @property
    def is_usable(self) -> bool:
        """False once it is closed, and in a forked child."""
        return not self._is_closing and not self._loop_thread.is_abandoned and self._pid == os.getpid()

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Runs an async function on the background loop and returns its result."""
        return self._loop_thread.run(lambda: self._until_closed(function))

    def start(self, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Starts a call without waiting for it."""
        if self.is_usable:
            self._loop_thread.send(self._start, function)

    def schedule(self, execution: Execution, replace: bool) -> None:
        """Prepares a task in the thread of the caller and sends it.

        Preparing runs the code of users: `__getstate__` may read a
        database, by a connection that belongs to the caller's thread,
        and Django refuses to do that in a thread with an event loop.
        """
        scheduler = self.docket.scheduler
        task = scheduler.prepare(execution, replace)
        if not self._caller_adds.send(execution, task):
            self.run(lambda: scheduler.schedule(execution, replace, task))

    def schedule_many(self, executions: Sequence[Execution], replace: bool) -> None:
        scheduler = self.docket.scheduler
        tasks = deque(_prepared(scheduler, execution, replace) for execution in executions)
        # A task that is sent is not kept: a chunk may be large.
        each = (tasks.popleft() for _ in executions)
        self.run(lambda: scheduler.schedule_many(executions, replace, prepared=each))

    def close(self) -> None:
        """Sends what is still to be sent, then closes the connections. Calls of other threads that
        still wait raise NotOpen."""
        self._is_closing = True
        self._caller_adds.close()
        self._loop_thread.run(self._aclose)

    def close_quietly(self) -> None:
        """At the end of the process, within a limited time."""

        async def close_in_time() -> None:
            async with asyncio.timeout(EXIT_SECONDS):
                await self._aclose()

        self._is_closing = True
        with contextlib.suppress(Exception):
            self._caller_adds.abandon()
            self._loop_thread.run(close_in_time)

    def close_later(self) -> None:
        """For a docket that was dropped without a close. Does not wait."""
        if self.is_usable:
            self._is_closing = True
            self._caller_adds.abandon()
            self._loop_thread.send(self._start, self._aclose)

    def abandon(self) -> None:
        """Called in a forked child."""
        self._caller_adds.abandon()

    def _start(self, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        task = asyncio.get_running_loop().create_task(function(), name=f"{self.docket.name} - closing")
        self._started.add(task)
        task.add_done_callback(self._started.discard)

    async def _aclose(self) -> None:
        this_process.sessions.discard(self)
        try:
            await self.docket.__aexit__(None, None, None)
        finally:
            await cancel_and_wait(self._calls, "docket: the docket was closed")

    async def _until_closed(self, function: Callable[[], Awaitable[T]]) -> T:
        """Runs a call. If the docket is closed meanwhile, the call raises NotOpen."""
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await function()
        except asyncio.CancelledError:
            if self._is_closing:
                raise NotOpen("the docket was closed") from None
            raise
        finally:
            self._calls.discard(task)


def _prepared(scheduler: Scheduler, execution: Execution, replace: bool) -> Prepared:
    try:
        return scheduler.prepare(execution, replace)
    except Exception as error:
        return error
