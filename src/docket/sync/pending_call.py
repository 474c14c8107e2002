"""A task that waits for its arguments: what `docket.add(function)` of a sync docket returns."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Awaitable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from docket.calls import CallFields

from .execution import Execution
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

    __slots__ = ("_fields", "_is_called", "_producer")

    def __init__(self, producer: Producer, fields: CallFields) -> None:
        self._producer = producer
        self._fields = fields
        self._is_called = False

    def __repr__(self) -> str:
        return repr(self._fields)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Execution[Any]:
        self._is_called = True
        self._fields.check(*args, **kwargs)
        return Execution(self._producer, self._producer.schedule(self._fields, args, kwargs))

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
