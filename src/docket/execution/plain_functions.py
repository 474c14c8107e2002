"""How a plain function, which cannot await, uses coroutines: those of docket, and any others.

A worker calls a plain function in a thread or in a child. Whichever it is, a `SyncCaller` in the
context of the call runs coroutines for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class SyncCaller(Protocol):
    """Runs coroutines for a plain function."""

    def run(self, awaitable: Awaitable[T]) -> T:
        """Returns the result of the awaitable, or raises its exception."""
        ...

    def check(self) -> None:
        """Raises CancelledError if the run was given up."""
        ...


sync_caller: ContextVar[SyncCaller | None] = ContextVar("sync_caller", default=None)


def run_async(awaitable: Awaitable[T]) -> T:
    """Runs an awaitable from a task that is a plain function, and returns its result:
    `execution = run_async(docket.add(other_task)(1))`.

    It runs in the event loop of the worker, or in that of the child. Raises CancelledError if the
    run was given up, and RuntimeError outside a plain function that a worker runs.
    """
    caller = _caller_here()
    if caller is None:
        close_unawaited(awaitable)
        raise RuntimeError(
            "run_async() is for tasks that are plain functions, while a worker runs them; "
            "an async function awaits: `await …`"
        )
    return _run(caller, awaitable)


def check_cancelled() -> None:
    """Raises CancelledError if the current run was given up: cancelled, timed out, or lost to
    another worker. Call it now and then in a long plain function, because a thread cannot be
    stopped from outside. Outside a run it does nothing."""
    caller = _caller_here()
    if caller is not None:
        caller.check()
        return
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return
    if task is not None and task.cancelling():
        raise asyncio.CancelledError("docket: the run was cancelled")


class _Done:
    """An awaitable that has nothing left to do."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


DONE: Awaitable[None] = _Done()


def awaitable_or_done(coroutine: Coroutine[Any, Any, None], caller: SyncCaller | None = None) -> Awaitable[None]:
    """The coroutine itself, for an async function to await. In a plain function, runs it now. A
    `caller` serves the threads that the function started: they do not have its context."""
    caller = sync_caller.get() or caller
    if caller is None or _is_in_event_loop():
        return coroutine
    _run(caller, coroutine)
    return DONE


def _run(caller: SyncCaller, awaitable: Awaitable[T]) -> T:
    try:
        caller.check()
    except BaseException:
        close_unawaited(awaitable)
        raise
    return caller.run(awaitable)


def _caller_here() -> SyncCaller | None:
    """The caller of the plain function in which this code runs. Coroutines that it started inherit
    its context, but run in the event loop."""
    return None if _is_in_event_loop() else sync_caller.get()


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def close_unawaited(awaitable: Awaitable[Any]) -> None:
    """Python would warn of a coroutine that was never awaited."""
    if isinstance(awaitable, Coroutine):
        awaitable.close()
