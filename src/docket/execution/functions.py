"""Task functions: how each kind is run, and how a
plain function, which cannot await, uses coroutines.

Each kind of function has a runtime, which is chosen once per function. To support another kind, add
its runtime and a line to `RUNTIMES`. (`dependencies.Runtime` is something else: a behaviour around
the call, such as `Timeout`.)

A worker calls a plain function in a thread or in a child. Whichever it is, a `SyncCaller` in the
context of the call runs coroutines for it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from types import FunctionType
from typing import Any, Protocol, TypeVar, cast, get_origin

from docket.errors import TaskNotRegistered

from .context import current_worker
from .task_call import TaskFunction

LAMBDA = "<lambda>"


class FunctionRuntime(Protocol):
    """Runs functions of one kind."""

    def accepts(self, function: Callable[..., Any]) -> bool:
        """Whether the function is of this kind."""
        ...

    def bind(self, function: Callable[..., Any]) -> TaskFunction:
        """Returns the function in a form that every caller can call and await."""
        ...


class EventLoopRuntime:
    """Runs async functions in the event loop of the worker. They need no wrapper."""

    def accepts(self, function: Callable[..., Any]) -> bool:
        return is_async(function)

    def bind(self, function: Callable[..., Any]) -> TaskFunction:
        return function


class ThreadRuntime:
    """Runs functions that are not async in a thread of the worker, so that they do not block its
    event loop."""

    def accepts(self, function: Callable[..., Any]) -> bool:
        return True

    def bind(self, function: Callable[..., Any]) -> TaskFunction:
        async def in_thread(*args: Any, **kwargs: Any) -> Any:
            result = await current_worker.get().staff.threads.call(function, args, kwargs)
            # A wrapper may return the coroutine of the function inside it.
            return await result if inspect.isawaitable(result) else result

        return functools.update_wrapper(in_thread, function)


# The first runtime that accepts a function runs it.
RUNTIMES: list[FunctionRuntime] = [EventLoopRuntime(), ThreadRuntime()]


def runtime_for(function: Callable[..., Any]) -> FunctionRuntime:
    return next(runtime for runtime in RUNTIMES if runtime.accepts(function))


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether a call of the function returns a generator, so that it cannot be a task."""
    body = _called(underlying(function))
    return inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether the function is async, wraps an async function, or says in its annotation that it
    returns an awaitable."""
    body = underlying(function)
    if isinstance(body, type):
        return hasattr(body, "__await__")
    if inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(_called(body)):
        return True
    return isinstance(body, FunctionType) and (_wraps_async(body) or _returns_awaitable(body))


def underlying(function: Any) -> Any:
    """The function inside partials and methods."""
    while isinstance(function, functools.partial):
        function = cast(Any, function).func
    return getattr(function, "__func__", function)


def _called(body: Any) -> Any:
    """The function that a call of an object calls."""
    return body if isinstance(body, FunctionType) else type(body).__call__


def _wraps_async(body: FunctionType) -> bool:
    try:
        inside = inspect.unwrap(body)
    except ValueError:
        return False
    return inside is not body and is_async(inside)


def _returns_awaitable(body: FunctionType) -> bool:
    returned: Any = body.__annotations__.get("return")
    if isinstance(returned, str):
        try:
            # Only this annotation: others may name types that exist for type checkers alone.
            returned = eval(returned, body.__globals__)
        except Exception:
            return False
    kind = get_origin(returned) or returned
    return isinstance(kind, type) and hasattr(cast(Any, kind), "__await__")


@functools.lru_cache(maxsize=1024)
def unregistered_function(name: str) -> TaskFunction:
    """A function of that name that can be displayed but not run."""

    async def unknown(*args: Any, **kwargs: Any) -> None:
        raise TaskNotRegistered(f"no task is registered as {name!r} in this process")

    unknown.__name__ = unknown.__qualname__ = name
    return unknown


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
