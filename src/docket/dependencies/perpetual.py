"""Tasks that schedule themselves again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from docket.model.times import check_durations

from .argument_checks import argument_check
from .base import CompletionHandler, TaskOutcome
from .passed_behaviours import BEHAVIOURS
from .worker_view import WorkerView, current_execution, current_worker

if TYPE_CHECKING:
    from typing import Self

    from docket.execution import Execution


class Perpetual(CompletionHandler[Any]):
    """Runs again after each run, `every` counted from
    start to start, for as long as nobody cancels it.

    An `automatic` one is scheduled by the workers themselves,
    once for the whole fleet, under the function's name.
    """

    def __init__(self, every: timedelta = timedelta(0), automatic: bool = False) -> None:
        check_durations(type(self).__name__, every=every)
        if every < timedelta(0):
            raise ValueError(f"{type(self).__name__}(every={every}): it cannot be negative")
        self.every = every
        self.automatic = automatic
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        self.cancelled: bool = False
        self._delay: timedelta | None = None
        self._when: datetime | None = None
        self._call_changed = False
        self._function: Callable[..., Any] | None = None

    @property
    def initial_when(self) -> datetime | None:
        """When an automatic task runs first; None means at once."""
        return None

    def first_time(self, now: datetime) -> datetime | None:
        """The same on a given clock."""
        return self.initial_when

    def provide(self, execution: Execution, worker: WorkerView) -> Self:
        bound = object.__new__(type(self))
        vars(bound).update(vars(self))
        bound.args, bound.kwargs = execution.args, execution.kwargs
        # One that a run passed on to another task has been used.
        bound.cancelled = bound._call_changed = False
        bound._delay = bound._when = None
        bound._function = execution.function
        return bound

    async def __aenter__(self) -> Self:
        return self.provide(current_execution.get(), current_worker.get())

    def cancel(self) -> None:
        """Ends the chain with this run."""
        self.cancelled = True

    def perpetuate(self, *args: Any, **kwargs: Any) -> None:
        """The next run gets these arguments, and the
        behaviours that were passed by keyword for this one.

        Raises TypeError if they do not fit the function, as `add` does.
        """
        behaviours = {name: self.kwargs[name] for name in self.kwargs if isinstance(self.kwargs[name], BEHAVIOURS)}
        if self._function is not None:
            argument_check(self._function)(*args, **behaviours, **kwargs)
        self.args, self.kwargs = args, {**behaviours, **kwargs}
        self._call_changed = True

    def after(self, delay: timedelta) -> None:
        """The next run comes this long after this one has ended."""
        self._delay, self._when = delay, None

    def at(self, when: datetime) -> None:
        """The next run comes at that time."""
        self._when, self._delay = when, None

    def _following(self, execution: Execution, outcome: TaskOutcome) -> tuple[timedelta | None, datetime | None]:
        """Delay or time of the next run, unless the task has asked for one itself."""
        return max(self.every - outcome.duration, timedelta(0)), None

    async def on_complete(self, execution: Execution, outcome: TaskOutcome) -> bool:
        if self.cancelled:
            return False
        delay, when = self._delay, self._when
        if delay is None and when is None:
            delay, when = self._following(execution, outcome)
        arguments = (self.args, self.kwargs) if self._call_changed else None
        execution.run_again(attempt=1, delay=delay, when=when, arguments=arguments)
        return True
