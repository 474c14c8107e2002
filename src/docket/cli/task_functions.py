"""The function behind a task's name, and its source."""

from __future__ import annotations

import functools
import inspect
import os
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True)
class TaskFunctionInfo:
    """A task's name, its function as `module:qualname`, and
    its source as `file:line`, or "" if it is unknown."""

    name: str
    function: str
    source: str


def describe_task(name: str, function: Any) -> TaskFunctionInfo:
    body = _body(function)
    module, qualname = getattr(body, "__module__", None), getattr(body, "__qualname__", None)
    return TaskFunctionInfo(name, f"{module}:{qualname}" if module and qualname else repr(function), _source(body))


def _body(function: Any) -> Any:
    """The function itself, without decorators, partial arguments and instances."""
    while isinstance(function, functools.partial):
        function = cast(Any, function).func
    function = inspect.unwrap(function)
    return function if hasattr(function, "__qualname__") else type(function).__call__


def _source(body: Any) -> str:
    code = getattr(getattr(body, "__func__", body), "__code__", None)
    if code is None:
        return ""
    file = str(code.co_filename)
    path = os.path.relpath(file)
    return f"{file if path.startswith(os.pardir) else path}:{code.co_firstlineno}"
