"""How functions are run. Each kind of function has a runtime, which is chosen once per function.

To support another kind of function, add a file with its runtime and a line to `RUNTIMES`.
(`dependencies.Runtime` is something else: a behaviour around the call, such as `Timeout`.)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol, cast, get_origin

from .task_call import TaskFunction
from .thread_runtime import ThreadRuntime

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
