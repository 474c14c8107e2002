"""Base classes of the behaviours that a task can declare,
for docket's own behaviours and for users' own."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar, runtime_checkable

from uncalled_for import Dependency

from docket.errors import DocketError
from docket.execution import Execution
from docket.execution.context import WorkerContext, current_docket, current_execution, current_worker
from docket.execution.execution import TaskFunction

T_co = TypeVar("T_co", covariant=True)


@dataclass
class TaskOutcome:
    """How a run ended: its duration, and its result or exception."""

    duration: timedelta
    result: Any = None
    exception: BaseException | None = None


class AdmissionBlocked(DocketError):
    """Raised by a dependency that does not admit the run now.

    With `handled=True` the dependency has already scheduled or parked the task.
    Otherwise, with `reschedule=True` the task is delayed by `retry_delay`. With
    `reschedule=False` the task is dropped; a perpetual task only skips this
    run, and runs again after `retry_delay` at the earliest.
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
    """Runs the body of the task function. A task has at most one."""

    single = True

    @abc.abstractmethod
    async def run(
        self, execution: Execution, function: TaskFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls the function and returns its result."""


class FailureHandler(Dependency[T_co]):
    """Called when a run failed. It returns True if it has dealt with the failure (the task runs
    again). A task has at most one."""

    single = True

    @abc.abstractmethod
    async def handle_failure(self, execution: Execution, outcome: TaskOutcome) -> bool:
        """Deals with a failed run. True: the failure
        is handled, for instance by another attempt."""


class CompletionHandler(Dependency[T_co]):
    """Called when a run ended, in success or failure. It returns
    True if the task runs again. A task has at most one."""

    single = True

    @abc.abstractmethod
    async def on_complete(self, execution: Execution, outcome: TaskOutcome) -> bool:
        """Is called after every end of a run. True: the task runs again."""


# Clients read these from the base class of all dependencies, which is uncalled-for's.
for _name, _variable in {
    "docket": current_docket,
    "worker": current_worker,
    "execution": current_execution,
}.items():
    setattr(Dependency, _name, _variable)


@runtime_checkable
class Immediate(Protocol):
    """A dependency that provides its value without a
    context manager, which costs almost nothing."""

    def provide(self, execution: Execution, worker: WorkerContext) -> Any: ...
