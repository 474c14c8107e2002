"""How functions are run. Each kind of function has a runtime, which is chosen once per function.

To support another kind of function, add a file with its runtime and a line to `RUNTIMES`.
(`dependencies.Runtime` is something else: a behaviour around the call, such as `Timeout`.)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol, cast, get_origin, get_type_hints

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
        body = underlying(function)
        if not isinstance(body, FunctionType) or inspect.iscoroutinefunction(body):
            return True
        if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            return False
        return _may_return_awaitable(body)

    def bind(self, function: Callable[..., Any]) -> TaskFunction:
        return function


RUNTIMES: list[FunctionRuntime] = [EventLoopRuntime()]


def is_supported(function: Callable[..., Any]) -> bool:
    return any(runtime.accepts(function) for runtime in RUNTIMES)


def runtime_for(function: Callable[..., Any]) -> FunctionRuntime:
    """The first runtime that accepts the function. Functions that no runtime accepts are refused
    when they are registered; a function that was not registered runs in the event loop."""
    return next((runtime for runtime in RUNTIMES if runtime.accepts(function)), RUNTIMES[0])


def underlying(function: Any) -> Any:
    """The function inside partials and methods."""
    while isinstance(function, functools.partial):
        function = cast(Any, function).func
    return getattr(function, "__func__", function)


def _may_return_awaitable(body: FunctionType) -> bool:
    """A function that is not async may still return an awaitable, if it is decorated or annotated
    so."""
    if body.__name__ == LAMBDA or hasattr(body, "__wrapped__") or hasattr(body, "__signature__"):
        return True
    try:
        returned = get_type_hints(body).get("return", None)
    except Exception:
        return True
    kind = get_origin(returned) or returned
    return kind is Any or not isinstance(kind, type | None) or hasattr(kind, "__await__")
