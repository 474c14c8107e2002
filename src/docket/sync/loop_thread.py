"""The background event loop: a thread that runs coroutines for callers in other threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, cast

from .selector import ForkableSelector

T = TypeVar("T")

# How long the thread may take to end when the process exits.
_STOP_SECONDS = 1.0


class LoopThread:
    """An event loop in a thread of its own, which does not keep the process alive."""

    def __init__(self) -> None:
        self._selector = ForkableSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._thread = threading.Thread(target=self._serve, name="docket - sync producers", daemon=True)
        # In a forked child: the thread does not exist there.
        self.is_abandoned: bool = False
        # At the end of the process: callers that wait already are left alone. Their threads end
        # with the process, and an error would only end them with a traceback.
        self.is_leaving: bool = False

    def start(self) -> None:
        self._thread.start()

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Runs an async function on the loop, in the context of the caller, and returns its result.
        An exception of the caller, such as KeyboardInterrupt, cancels it."""
        if threading.get_ident() == self._thread.ident:
            raise RuntimeError(
                "docket.sync was used in its own background thread, for instance while it decodes an argument: "
                "the call would wait for itself"
            )
        call = _Call(function, self)
        try:
            self._loop.call_soon_threadsafe(call.start, self._loop, context=contextvars.copy_context())
            call.done.acquire()
        except BaseException:
            self.send(call.cancel)
            raise
        return call.result()

    def send(self, function: Callable[..., object], *args: Any) -> None:
        """Calls a function on the loop, and does not wait for it."""
        if not self.is_abandoned and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)

    def stop(self) -> None:
        """Ends the thread."""
        # The tasks of callers that are left alone stay pending.
        self._loop.set_exception_handler(lambda loop, context: None)
        self.send(self._loop.stop)
        self._thread.join(_STOP_SECONDS)

    def abandon(self) -> None:
        """Called in a forked child: nothing of this object is used there any more."""
        self.is_abandoned = True
        self._selector.abandon()
        # Python may collect the tasks of the parent, which are pending for ever here.
        self._loop.set_exception_handler(lambda loop, context: None)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


class _Call(Generic[T]):
    """One call from another thread."""

    __slots__ = ("_error", "_function", "_is_of_exit", "_result", "_task", "_thread", "done")

    def __init__(self, function: Callable[[], Awaitable[T]], thread: LoopThread) -> None:
        self._function = function
        self._thread = thread
        self._is_of_exit = thread.is_leaving
        self._task: asyncio.Task[None] | None = None
        self._result: T | None = None
        self._error: BaseException | None = None
        # A bare lock wakes its thread sooner than a future of the standard library.
        self.done: threading.Lock = threading.Lock()
        self.done.acquire()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._run())

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel("docket: the caller has gone")

    async def _run(self) -> None:
        try:
            self._result = await self._function()
        except BaseException as error:
            # Without this frame, which says nothing to a reader.
            self._error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        finally:
            if self._is_of_exit is self._thread.is_leaving:
                self.done.release()

    def result(self) -> T:
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                # The traceback refers to this frame.
                del error
        return cast(T, self._result)
