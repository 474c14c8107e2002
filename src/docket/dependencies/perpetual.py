"""Tasks that schedule themselves again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from docket.execution import Execution
from docket.execution.context import WorkerContext, current_execution, current_worker
from docket.model.times import check_durations

from .argument_checks import argument_check
from .base import CompletionHandler, TaskOutcome
from .plan import BEHAVIOURS

if TYPE_CHECKING:
    from typing import Self


class Perpetual(CompletionHandler[Any]):
    """Runs the task again after each run, until it is cancelled. `every` is the time from the start
    of one run to the start of the next.

    With `automatic=True` the workers schedule the task themselves, once for the whole fleet. Its
    key is the function's name.
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
        """The time of the first run of an automatic task, or None for an immediate start."""
        return None

    def first_time(self, now: datetime) -> datetime | None:
        """The time of `initial_when`, with `now` as the current time."""
        return self.initial_when

    def provide(self, execution: Execution, worker: WorkerContext) -> Self:
        """A copy for this run, with the arguments of the task."""
        bound = object.__new__(type(self))
        vars(bound).update(vars(self))
        bound.args, bound.kwargs = execution.args, execution.kwargs
        # A run may have passed its own Perpetual to another task: discard the state from that run.
        bound.cancelled = bound._call_changed = False
        bound._delay = bound._when = None
        bound._function = execution.function
        return bound

    async def __aenter__(self) -> Self:
        return self.provide(current_execution.get(), current_worker.get())

    def cancel(self) -> None:
        """Makes this run the last one."""
        self.cancelled = True

    def perpetuate(self, *args: Any, **kwargs: Any) -> None:
        """Sets the arguments of the next run. It also gets the
        behaviours that were passed to this run by keyword.

        Raises TypeError if the arguments do not fit the function, as `add` does.
        """
        behaviours = {name: self.kwargs[name] for name in self.kwargs if isinstance(self.kwargs[name], BEHAVIOURS)}
        if self._function is not None:
            argument_check(self._function)(*args, **behaviours, **kwargs)
        self.args, self.kwargs = args, {**behaviours, **kwargs}
        self._call_changed = True

    def after(self, delay: timedelta) -> None:
        """Schedules the next run this long after the end of this run."""
        self._delay, self._when = delay, None

    def at(self, when: datetime) -> None:
        """Schedules the next run for that time."""
        self._when, self._delay = when, None

    def _following(self, execution: Execution, outcome: TaskOutcome) -> tuple[timedelta | None, datetime | None]:
        """The delay or the time of the next run. It
        applies unless the body called `after` or `at`."""
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
