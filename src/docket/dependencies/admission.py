"""The common part of all limits: which tasks a limit
counts together, and how it asks the ledger."""

from __future__ import annotations

import copy
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from uncalled_for import Dependency, get_dependency_parameters, get_signature

from docket.execution import Execution
from docket.execution.arguments import arguments_by_name, display_name
from docket.execution.context import current_docket
from docket.ledger import Ledger, Taken
from docket.model.times import check_durations, duration_ms

from .base import AdmissionBlocked
from .fingerprints import fingerprint

if TYPE_CHECKING:
    from typing import Self


T = TypeVar("T")
_NOT_READABLE = re.compile(r"\W", re.ASCII)


class Admission(Dependency[Any]):
    """A dependency that decides, from the call alone, whether a run may begin now.

    As a parameter's default it applies to the whole task. As `Annotated` metadata it applies to
    each value of that parameter, across all tasks that limit a parameter of the same name in the
    same scope. Admissions are entered before all other dependencies of the task, in ascending order
    of `rank`, so that a task that has to wait opens no resources.
    """

    rank: ClassVar[int] = 0

    def __init__(self, scope: str | None = None, variant: int = 0) -> None:
        self.scope = scope
        # Distinguishes two limits of the same kind on the same task or parameter.
        self.variant = variant
        self.parameter: str | None = None
        self.value: Any = None

    def for_parameter(self, name: str) -> Self:
        # All runs share one declaration, so each run gets a copy for its own state.
        return copy.copy(self)

    def bind_to_parameter(self, name: str, value: Any) -> Self:
        bound = copy.copy(self)
        bound.parameter, bound.value = name, value
        return bound

    def validate_for(self, function: Callable[..., Any], parameter: str) -> None:
        """Raises a ValueError that names the task and
        the parameter if the limit cannot apply there."""
        default = get_dependency_parameters(function).get(parameter)
        if default is not None and default is not self:
            raise ValueError(
                f"{display_name(function)}: {self.kind} on {parameter!r}: a dependency fills that parameter, so its value "
                "is not known before the task is admitted; limit one of the task's arguments instead"
            )

    @property
    def kind(self) -> str:
        """The name of its class."""
        return type(self).__name__

    def group_name(self, function_name: str, parameter: str | None) -> str:
        """The name under which the limit counts, the same for all values of a parameter."""
        name = function_name if parameter is None else parameter
        return _group_name(self.kind, self.scope, self.variant, parameter is None, name)

    def limit_name(self, execution: Execution, parameter: str | None, value: Any) -> str:
        """The name under which the limit counts this task. It does not reveal the user's value."""
        group = self.group_name(execution.function_name, parameter)
        if parameter is None:
            return group
        try:
            return f"{group}~{fingerprint(value)}"
        except Exception as error:
            raise TypeError(
                f"{self.kind} on {parameter!r} of {execution.function_name}: a value of type {type(value).__name__} "
                f"cannot be compared with other values ({error}); limit an id instead"
            ) from error

    def bound_name(self, execution: Execution) -> str:
        """The name under which this limit counts the task."""
        return self.limit_name(execution, self.parameter, self.value)

    @property
    def _for_each(self) -> str:
        """The parameter that the limit applies to, for messages.
        Values may be confidential, so they are not shown."""
        return "" if self.parameter is None else f" for each {self.parameter}"


class SettledByLimit(AdmissionBlocked):
    """The script that blocked the run has also settled it: it parked or delayed the task. The
    worker has nothing left to write."""

    def __init__(self, execution: Execution, reason: str, *, retry_delay: timedelta | None = None) -> None:
        super().__init__(execution, reason, handled=True, retry_delay=retry_delay)


def superseded(execution: Execution) -> AdmissionBlocked:
    """The error for a run that a newer run of its task has replaced. The worker still settles the
    old run, which releases the limits' slots and turns that it may hold."""
    return AdmissionBlocked(execution, "a newer run of the same task", retry_delay=timedelta(0))


def call_arguments(execution: Execution) -> dict[str, Any]:
    """The arguments of the call by name, including the
    defaults in the signature but no dependencies."""
    parameters = get_signature(execution.function).parameters
    defaults = {
        name: p.default
        for name, p in parameters.items()
        if p.default is not p.empty and not isinstance(p.default, Dependency)
    }
    return {**defaults, **arguments_by_name(execution.function, execution.args, execution.kwargs)}


async def ask_until_answered(ask: Callable[[], Awaitable[T]], ledger: Ledger | None = None) -> T:
    """Repeats a request until the server answers, because a short outage must fail neither a task
    nor the start of a worker. The request must be safe to repeat. `ledger` is the current docket's
    if it is not given."""
    outages = (ledger or current_docket.get().ledger).server.outages
    return await outages.until_answered(ask, "admission")


def keep(execution: Execution, taken: Taken | None) -> None:
    """Notes what the run has taken from a limit. If another dependency blocks the run, its
    settlement gives this back."""
    if taken is not None:
        execution.taken = [*execution.taken, taken]


def positive_ms(owner: str, name: str, duration: timedelta) -> int:
    """A duration in whole milliseconds, at least 1.
    Raises ValueError if the duration is not positive."""
    check_durations(owner, **{name: duration})
    if duration <= timedelta(0):
        raise ValueError(f"{owner}({name}={duration}): it must be longer than zero")
    return max(duration_ms(duration), 1)


def positive_count(owner: str, name: str, count: int) -> int:
    """A count of at least 1. Raises TypeError if the count
    is not a whole number and ValueError if it is below 1."""
    if type(count) is not int:
        raise TypeError(f"{owner}({name}={count!r}): it must be a whole number")
    if count < 1:
        raise ValueError(f"{owner}({name}={count}): it must be at least 1")
    return count


@lru_cache(maxsize=4096)
def _group_name(kind: str, scope: str | None, variant: int, whole_task: bool, name: str) -> str:
    """A name that starts with the readable part, for operators. The fingerprint makes it unique.

    A run takes its slots in the order of the limits' names. Limits on a value (`arg~`) come before
    limits on a whole task (`task~`), because fewer runs compete for them.
    """
    family = "task" if whole_task else "arg"
    return f"{family}~{_NOT_READABLE.sub('-', name)[:40]}~{fingerprint(kind, scope, variant, name)}"
