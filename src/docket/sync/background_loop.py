"""The background event loop of this process: a thread that runs coroutines for callers in other
threads. A forked child gives up its copy of it, and the end of the process closes the dockets."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import importlib
import os
import selectors
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

if TYPE_CHECKING:
    from .open_docket import OpenDocket


class ForkableSelector(selectors.DefaultSelector):
    """A selector that a forked child can give up without touching the parent's connections.

    On Linux parent and child share one epoll instance: if the child removed a socket from it, the
    parent would never hear of that socket again. Objects of the inherited event loop do remove
    their sockets when Python collects them. TLS connections would even write a farewell.
    """

    _is_abandoned = False

    def abandon(self) -> None:
        """Called in a forked child. Closes the child's copies of the descriptors, at once and
        without a word to the server."""
        registered = [key.fd for key in super().get_map().values()]
        self._is_abandoned = True
        null = os.open(os.devnull, os.O_RDWR)
        for fd in registered:
            # Replaced, not closed: the number still belongs to an inherited object, which closes it
            # when it is collected.
            os.dup2(null, fd, inheritable=False)
        os.close(null)
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self._is_abandoned:
            try:
                return super().select(timeout)
            except Exception:
                if not self._is_abandoned:
                    raise
        # The greenlets of gevent live on in a forked child, unlike threads. The event loop of the
        # parent must not go on there, nor end: Python would take the new one for ended, too.
        threading.Event().wait()
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {} if self._is_abandoned else super().get_map()

    def close(self) -> None:
        if not self._is_abandoned:
            super().close()


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


class ThisProcess:
    """The background event loop, which starts when it is first used, and the open sessions. A
    forked child begins with neither."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._loop_thread: LoopThread | None = None
        self.sessions: set[OpenDocket] = set()
        # Objects of the parent. They are kept: if Python collected them one by one, some of them
        # would complain.
        self._inherited: list[object] = []

    def loop_thread(self) -> LoopThread:
        if self._pid != os.getpid():
            # uWSGI forks without a word to Python.
            self.begin_in_forked_child()
        found = self._loop_thread
        if found is None:
            with self._lock:
                found = self._loop_thread
                if found is None:
                    found = LoopThread()
                    found.start()
                    self._loop_thread = found
        return found

    def begin_in_forked_child(self) -> None:
        # Another thread of the parent may have held the lock.
        self._lock = threading.Lock()
        self._pid = os.getpid()
        found, self._loop_thread = self._loop_thread, None
        sessions, self.sessions = self.sessions, set()
        if found is not None:
            found.abandon()
        for session in sessions:
            session.abandon()
        self._inherited += [found, sessions]

    def close_all(self) -> None:
        """At the end of the process. Nobody is left to hear of an error."""
        found, self._loop_thread = self._loop_thread, None
        if found is None:
            return
        found.is_leaving = True
        for session in list(self.sessions):
            session.close_quietly()
        found.stop()


# The first use imports these: the codec of host names, what redis-py needs to read its own version,
# and what reads docket's scripts. If a process forks while one of its threads imports a module,
# that import never ends in the child. So they are imported before there is a thread.
for _module in ("email.parser", "encodings.idna", "importlib.readers"):
    importlib.import_module(_module)

this_process: ThisProcess = ThisProcess()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=this_process.begin_in_forked_child)
atexit.register(this_process.close_all)
