"""Assertions about the tasks that wait on a docket. Running and finished tasks do not count."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from docket.docket import Docket
from docket.execution import Execution
from docket.registry import name_of

_SHOWN = 20

Function = str | Callable[..., Any]


async def assert_task_scheduled(
    docket: Docket,
    function: Function,
    *,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    key: str | None = None,
) -> None:
    """Fails unless a task of the function is waiting. If given,
    `args` must be equal to its positional arguments, `kwargs` must
    be among its keyword arguments, and `key` must be its key."""
    waiting = (await docket.snapshot()).future
    if not any(_fits(execution, function, args, kwargs, key) for execution in waiting):
        raise AssertionError(f"{_wanted(function, args, kwargs, key)} is not scheduled; {_what_is_there(waiting)}")


async def assert_task_not_scheduled(
    docket: Docket,
    function: Function,
    *,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    key: str | None = None,
) -> None:
    """Fails if a task of the function is waiting. `args`, `kwargs` and `key` select tasks as in
    assert_task_scheduled."""
    waiting = (await docket.snapshot()).future
    found = [execution for execution in waiting if _fits(execution, function, args, kwargs, key)]
    if found:
        raise AssertionError(f"{_wanted(function, args, kwargs, key)} should not be scheduled, but is:{_listed(found)}")


async def assert_task_count(docket: Docket, function: Function | None = None, *, count: int) -> None:
    """Fails unless exactly `count` tasks are waiting. With `function`, only its tasks count."""
    waiting = (await docket.snapshot()).future
    name = None if function is None else _name(function)
    found = sum(1 for execution in waiting if name is None or execution.function_name == name)
    if found != count:
        of = "" if name is None else f" of {name}"
        raise AssertionError(f"expected {_tasks(count)}{of}, found {found:,}; {_what_is_there(waiting)}")


async def assert_no_tasks(docket: Docket) -> None:
    """Fails if any task is waiting."""
    waiting = (await docket.snapshot()).future
    if len(waiting):
        raise AssertionError(f"expected no tasks; {_what_is_there(waiting)}")


def _fits(
    execution: Execution,
    function: Function,
    args: tuple[Any, ...] | None,
    kwargs: dict[str, Any] | None,
    key: str | None,
) -> bool:
    return (
        execution.function_name == _name(function)
        and (key is None or execution.key == key)
        and (args is None or _equal(execution.args, args))
        and (kwargs is None or _contains(execution.kwargs, kwargs))
    )


def _contains(stored: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(name in stored and _equal(stored[name], value) for name, value in wanted.items())


def _equal(stored: Any, wanted: Any) -> bool:
    try:
        return bool(stored == wanted)
    except Exception:
        # Some values, such as arrays, do not compare to a plain True or False.
        return False


def _name(function: Function) -> str:
    return function if isinstance(function, str) else name_of(function)


def _wanted(function: Function, args: tuple[Any, ...] | None, kwargs: dict[str, Any] | None, key: str | None) -> str:
    given = {"args": args, "kwargs": kwargs, "key": key}
    details = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
    return f"{_name(function)} with {details}" if details else _name(function)


def _what_is_there(waiting: Any) -> str:
    if not len(waiting):
        return "no task waits on the docket"
    verb = "waits" if len(waiting) == 1 else "wait"
    return f"{_tasks(len(waiting))} {verb} on the docket:{_listed(waiting)}"


def _listed(executions: Any) -> str:
    lines = [f"\n  - {_shown(execution)}" for execution in _first(executions)]
    more = len(executions) - len(lines)
    return "".join(lines) + (f"\n  … and {more:,} more" if more else "")


def _first(executions: Any) -> Iterable[Execution]:
    return (executions[i] for i in range(min(len(executions), _SHOWN)))


def _shown(execution: Execution) -> str:
    arguments = [*(repr(value) for value in execution.args), *(f"{n}={v!r}" for n, v in execution.kwargs.items())]
    return f"{execution.function_name}({', '.join(arguments)}) key={execution.key!r} at {execution.when.isoformat()}"


def _tasks(count: int) -> str:
    return f"{count:,} task" if count == 1 else f"{count:,} tasks"
