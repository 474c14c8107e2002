"""A task that waits for its arguments: what `docket.add(function)` of a sync docket returns."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from docket.execution import TaskFunction

from .execution import Execution

if TYPE_CHECKING:
    from .producer import Producer


P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class ScheduledAtOnce(Protocol[P, R_co]):
    """A pending call as type checkers see it. The result of an async function is the value that it
    returns when it is awaited; the result of a plain function is what it returns."""

    @overload
    def __call__(self: ScheduledAtOnce[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> Execution[R]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Execution[R_co]: ...


class PendingCall:
    """Schedules a call of its function: `docket.add(function)(*args, **kwargs)`."""

    __slots__ = ("_check", "_function", "_is_called", "_key", "_name", "_producer", "_replace", "_when")

    def __init__(
        self,
        producer: Producer,
        function: TaskFunction,
        name: str,
        when: datetime | None,
        key: str | None,
        replace: bool,
        check: Callable[..., None],
    ) -> None:
        self._producer = producer
        self._function = function
        self._name = name
        self._when = when
        self._key = key
        self._replace = replace
        self._check = check
        self._is_called = False

    def __repr__(self) -> str:
        return f"docket.{'replace' if self._replace else 'add'}({self._name})"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Execution[Any]:
        self._is_called = True
        self._check(*args, **kwargs)
        producer = self._producer
        execution = producer.schedule(
            self._function, args, kwargs, self._when, self._key, self._name, replace=self._replace
        )
        return Execution(producer, execution)

    def __del__(self) -> None:
        # An async docket raises an error here, since nobody awaits the result of `add` alone.
        with contextlib.suppress(AttributeError):
            if not self._is_called:
                warnings.warn(
                    f"{self!r} has scheduled nothing: a second pair of parentheses takes the arguments of the task, "
                    f"as in {self!r}(…), also if it has none",
                    RuntimeWarning,
                    stacklevel=2,
                )
