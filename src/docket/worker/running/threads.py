"""The threads in which a worker runs plain functions (docs/functions.md)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

from docket.execution import Execution
from docket.execution.context import current_execution
from docket.execution.functions import close_unawaited, sync_caller
from docket.instrumentation import THREADS_ABANDONED

from .runs import Runs, Slots

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("docket.worker")

ENDED = "docket: the worker has ended"


class ThreadCall:
    """One call of a plain function in a thread. It is the function's `SyncCaller`."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        # Coroutines that the function waits for.
        self._waits: set[concurrent.futures.Future[Any]] = set()
        # Why the run was given up, if it was.
        self.given_up: str | None = None
        self.has_returned: bool = False
        self.returned: asyncio.Future[None] = self._loop.create_future()
        self._result: Any = None
        self._error: BaseException | None = None

    # In the thread

    def run_function(self) -> None:
        """Calls the function, unless the run was given up before. Never raises."""
        if self.given_up is None:
            try:
                self._result = self._context.run(self._call)
            except BaseException as error:
                self._error = error

    def _call(self) -> Any:
        sync_caller.set(self)
        execution = current_execution.get(None)
        if execution is not None:
            execution.serve_progress(self)
        return self._function(*self._args, **self._kwargs)

    def check(self) -> None:
        if self.given_up is not None:
            raise asyncio.CancelledError(self.given_up)

    def run(self, awaitable: Awaitable[T]) -> T:
        coroutine = _await(awaitable)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            # The event loop is closed.
            close_unawaited(awaitable)
            coroutine.close()
            raise asyncio.CancelledError(ENDED) from None
        self._waits.add(future)
        try:
            if self.given_up is not None:
                future.cancel()
            return future.result()
        except concurrent.futures.CancelledError:
            raise asyncio.CancelledError(self.given_up or "") from None
        finally:
            self._waits.discard(future)

    # In the event loop

    def give_up(self, reason: str) -> None:
        self.given_up = reason
        for future in list(self._waits):
            future.cancel()

    def outcome(self) -> Any:
        """The result of the function. Raises its exception."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                # A traceback that refers to its own exception would live until the next garbage
                # collection.
                self._error = None
        return self._result


class AbandonedRuns:
    """Runs that were given up while their thread goes on. Keeps the slot of such a run until its
    thread returns, and counts the threads: a worker with abandoned threads does not run a suspect,
    which has to be alone in its process."""

    def __init__(self, runs: Runs, slots: Slots) -> None:
        self._runs = runs
        self._slots = slots

    def abandon(self, execution: Execution | None) -> bool:
        """Counts the thread of the run. Returns whether the slot of the run stays taken."""
        self._runs.abandoned += 1
        run = self._runs.find(execution.epoch) if execution is not None else None
        if run is None or not run.holds_slot:
            return False
        run.holds_slot = False
        self._slots.abandon()
        return True

    def thread_returned(self, *, slot_is_taken: bool) -> None:
        self._runs.abandoned -= 1
        if slot_is_taken:
            self._slots.restore()


class Threads:
    """Calls plain functions, each in a thread of its own.

    Threads start when they are needed. A thread cannot be stopped: when a run is cancelled, its
    coroutine ends at once, and its thread is abandoned until the function returns. Threads are
    daemons, so they never hold up the end of the process.
    """

    def __init__(self, count: int, name: str, labels: dict[str, str], runs: AbandonedRuns) -> None:
        self.count: int = count
        self.abandoned: int = 0
        self._name = name
        self._labels = labels
        self._runs = runs
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[ThreadCall | None] = queue.SimpleQueue()
        self._free = count
        self._started = 0
        # Calls for which there is no free thread.
        self._waiting: deque[asyncio.Future[None]] = deque()
        # Calls that have returned. The first one wakes the event loop, and the others join it.
        self._returned: deque[ThreadCall] = deque()
        self._is_woken = False
        # Whether a slot stays taken for the call.
        self._abandoned_calls: dict[ThreadCall, bool] = {}

    @property
    def busy(self) -> int:
        """How many threads have a call."""
        return self.count - self._free

    async def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls the function in a thread and returns its result."""
        await self._take_thread()
        call = ThreadCall(function, args, kwargs)
        self._calls.put(call)
        try:
            await call.returned
        except asyncio.CancelledError as cancel:
            self._give_up(call, str(cancel.args[0]) if cancel.args else "docket: the run was cancelled")
            raise
        return call.outcome()

    def close(self) -> None:
        """Ends the threads that are idle, and the others when their function returns."""
        for _ in range(self._started):
            self._calls.put(None)

    # Free threads

    async def _take_thread(self) -> None:
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait_for_thread()
        if self.count - self._free > self._started:
            self._start_thread()

    async def _wait_for_thread(self) -> None:
        """Returns when a thread is free. The first waiter
        gets the next thread, before any new call."""
        waiting = self._loop.create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._free_thread()
            raise

    def _free_thread(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self._free += 1

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name=f"{self._name} - thread:{self._started}", daemon=True).start()
        except RuntimeError:
            # The system has no thread left. The call waits
            # for a thread of this worker, if there is one.
            if not self._started:
                self._free_thread()
                raise
        else:
            self._started += 1

    # Runs that are given up

    def _give_up(self, call: ThreadCall, reason: str) -> None:
        call.give_up(reason)
        if call.has_returned:
            return
        execution = current_execution.get(None)
        self._abandoned_calls[call] = self._runs.abandon(execution)
        self.abandoned += 1
        THREADS_ABANDONED.add(1, self._labels)
        logger.warning(
            "%s was given up (%s), but its thread goes on: the slot stays taken until the function returns",
            execution.call_repr() if execution is not None else "a call",
            reason,
            extra=self._labels,
        )

    # In the threads

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run_function()
            self._returned.append(call)
            del call
            if not self._is_woken:
                self._is_woken = True
                try:
                    self._loop.call_soon_threadsafe(self._receive)
                except RuntimeError:
                    # The event loop is closed, and so is the worker.
                    self._is_woken = False
                    self._count_returned()

    def _count_returned(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                if self._returned.popleft() in self._abandoned_calls:
                    THREADS_ABANDONED.add(-1, self._labels)

    # In the event loop again

    def _receive(self) -> None:
        # Before the loop: a call that returns after the
        # loop has ended must wake the event loop again.
        self._is_woken = False
        while self._returned:
            call = self._returned.popleft()
            call.has_returned = True
            self._free_thread()
            if call in self._abandoned_calls:
                self.abandoned -= 1
                THREADS_ABANDONED.add(-1, self._labels)
                self._runs.thread_returned(slot_is_taken=self._abandoned_calls.pop(call))
            elif not call.returned.done():
                call.returned.set_result(None)


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable
