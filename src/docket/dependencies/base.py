"""The kinds of behaviour a task can declare, for docket's own and for users'."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from uncalled_for import Dependency

from docket.errors import DocketError

if TYPE_CHECKING:
    from docket.execution import Execution
    from docket.execution.execution import TaskFunction

T_co = TypeVar("T_co", covariant=True)


@dataclass
class TaskOutcome:
    """How a run ended: its duration, and its result or exception."""

    duration: timedelta
    result: Any = None
    exception: BaseException | None = None


class AdmissionBlocked(DocketError):
    """Raised by a dependency that does not let the task run now.

    `handled`: the dependency has put the task away itself. `reschedule`: it is put off by
    `retry_delay`; else it is dropped, and a perpetual one skips this run and comes back after
    `retry_delay` at the earliest.
    """

    def __init__(
        self,
        execution: Execution,
        reason: str = "admission control",
        *,
        handled: bool = False,
        reschedule: bool = True,
        retry_delay: timedelta | None = None,
    ) -> None:
        super().__init__(f"task {execution.key!r} ({execution.function_name}) blocked by {reason}")
        self.execution = execution
        self.reason = reason
        self.handled = handled
        self.reschedule = reschedule
        self.retry_delay = retry_delay


class Runtime(Dependency[T_co]):
    """Runs the task's body. One per task."""

    single = True

    @abc.abstractmethod
    async def run(
        self, execution: Execution, function: TaskFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any: ...


class FailureHandler(Dependency[T_co]):
    """Asked when a task failed. True: the failure is
    dealt with (the task runs again). One per task."""

    single = True

    @abc.abstractmethod
    async def handle_failure(self, execution: Execution, outcome: TaskOutcome) -> bool: ...


class CompletionHandler(Dependency[T_co]):
    """Asked when a task ended, well or not. True: it runs again. One per task."""

    single = True

    @abc.abstractmethod
    async def on_complete(self, execution: Execution, outcome: TaskOutcome) -> bool: ...
