"""Tasks that run by the clock on the wall."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from cronsim import CronSim, CronSimError

from .base import TaskOutcome
from .perpetual import Perpetual
from .worker_view import WorkerView

if TYPE_CHECKING:
    from typing import Self

    from docket.execution import Execution

_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Cron(Perpetual):
    """Runs at the times of a cron expression (five fields,
    or @hourly and its like), in a time zone, DST included.

    Each time runs once, whatever the workers' clocks show. A run that
    is still going at the next time is followed by that one, at once.
    A late run makes up for all times that were missed before it.
    """

    def __init__(self, expression: str, automatic: bool = True, tz: tzinfo = UTC) -> None:
        super().__init__(automatic=automatic)
        self.expression = expression
        self.tz = tz
        self._after: datetime | None = None
        fields = len(expression.split())
        if fields > 5:
            raise ValueError(
                f"Cron({expression!r}): {fields} fields; a cron expression has five (minute, hour, day, month, weekday). "
                "There is none for seconds; Perpetual(every=timedelta(seconds=…)) runs as often as that"
            )
        try:
            self._iterator(datetime.now(tz))
        except CronSimError as error:
            raise ValueError(f"Cron({expression!r}): not a cron expression: {error}") from None

    @property
    def initial_when(self) -> datetime | None:
        return self.first_time(datetime.now(UTC))

    def first_time(self, now: datetime) -> datetime | None:
        return self._from(now).next_time()

    def next_time(self) -> datetime:
        """The next time of the expression, in its time
        zone; a further call returns the time after that.

        It decides when the task runs: a subclass that overrides it is obeyed. In a run the times
        begin after the run's own time and its start.
        """
        self._after = self.slot_after(self._after or datetime.now(UTC))
        return self._after

    def slot_after(self, moment: datetime) -> datetime:
        """The first time of the expression after a moment."""
        try:
            return next(self._iterator(moment.astimezone(self.tz)))
        except StopIteration:
            raise ValueError(f"Cron({self.expression!r}): there is no such time") from None

    def provide(self, execution: Execution, worker: WorkerView) -> Self:
        bound = super().provide(execution, worker)
        bound._after = _reached(execution)
        return bound

    def _following(self, execution: Execution, outcome: TaskOutcome) -> tuple[timedelta | None, datetime | None]:
        # The body may have asked for times of its own: that does not move the next run.
        return None, self._from(_reached(execution)).next_time()

    def _from(self, moment: datetime) -> Self:
        """A copy whose times begin after a moment."""
        copied = copy.copy(self)
        copied._after = moment
        return copied

    def _iterator(self, moment: datetime) -> CronSim:
        return CronSim(_NICKNAMES.get(self.expression.strip().lower(), self.expression), moment)


def _reached(execution: Execution) -> datetime:
    """How far in time a run has come: a clock that
    is behind must not give it its own time again."""
    return max(execution.when, execution.started_at or execution.when)
