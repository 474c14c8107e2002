"""The object that `docket.add(function)` returns. Call it with the task's arguments."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeVar, overload

from docket.execution import Execution, TaskFunction
from docket.execution.execution import new_execution
from docket.execution.task_call import FRESH
from docket.instrumentation import inject_context, is_tracing
from docket.model.task_keys import new_key
from docket.spans import task_span

if TYPE_CHECKING:
    from docket.docket import Docket


P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class ScheduledBy(Protocol[P, R_co]):
    """A pending call as type checkers see it. The result of an async function is the value that it
    returns when it is awaited; the result of a plain function is what it returns.

    The overloads are here rather than in `Docket.add`, because there mypy could not choose one for
    a function that has a parameter of type Any.
    """

    @overload
    def __call__(
        self: ScheduledBy[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Execution[R]]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Execution[R_co]]: ...


class PendingCall:
    """Schedules a call of its function: `await docket.add(function)(*args, **kwargs)`."""

    __slots__ = ("_check", "_docket", "_function", "_key", "_name", "_replace", "_when")

    # Frameworks use these marks to find out whether a call must be awaited.
    _is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", None)
    _is_coroutine_marker = getattr(inspect, "_is_coroutine_mark", None)

    def __init__(
        self,
        docket: Docket,
        function: TaskFunction,
        name: str,
        when: datetime | None,
        key: str | None,
        replace: bool,
        check: Callable[..., None],
    ) -> None:
        self._docket = docket
        self._function = function
        self._name = name
        self._when = when
        self._key = key
        self._replace = replace
        self._check = check

    def __repr__(self) -> str:
        return f"docket.{'replace' if self._replace else 'add'}({self._name})"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Execution]:
        self._check(*args, **kwargs)
        call = self._schedule(args, kwargs)
        # Python shows this name in its warning about a call that was never awaited.
        call.__qualname__ = f"docket.replace({self._name})" if self._replace else f"docket.add({self._name})"
        return call

    def __await__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is not called yet, so there is nothing to await. Call it first, even without arguments: "
            f"`await {self!r}(…)`"
        )

    async def _schedule(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Execution:
        docket, key = self._docket, self._key
        execution = new_execution(
            docket,
            self._function,
            args,
            kwargs,
            new_key() if key is None else key,
            self._when or docket.now(),
            self._name,
        )
        if key is None:
            execution.key_use = FRESH
        if is_tracing():
            with task_span(docket, "replace" if self._replace else "add", execution):
                execution.trace_context = inject_context()
                await docket.scheduler.schedule(execution, self._replace)
        else:
            await docket.scheduler.schedule(execution, self._replace)
        return execution


def check_when_and_key(when: object, key: object, name: str) -> None:
    """Raises TypeError if a caller passes the task's own arguments as `when` or `key`."""
    if when is not None and not isinstance(when, datetime):
        raise TypeError(
            f"when={when!r} is not a datetime (for a delay, pass when=docket.now() + timedelta(…)); "
            f"the task's own arguments go into the second pair of parentheses: docket.add({name})(…)"
        )
    if key is not None and not isinstance(key, str):
        raise TypeError(f"key={key!r}: the key of a task is text, for instance key=f'{name}-{{number}}'")
