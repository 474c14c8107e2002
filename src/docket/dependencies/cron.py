"""Tasks that run at the times of a cron expression."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from cronsim import CronSim, CronSimError

from docket.execution import Execution
from docket.execution.context import WorkerContext

from .base import TaskOutcome
from .perpetual import Perpetual

if TYPE_CHECKING:
    from typing import Self


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
    """Runs at the times of a cron expression (five fields, or a nickname such as @hourly) in a time
    zone. It follows changes to and from daylight saving time.

    Each time runs once, even if the workers' clocks differ. If a run
    is still going at the next time, that next run follows at once.
    If several times were missed, one late run covers all of them.
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
                "Cron has no field for seconds; for shorter intervals use Perpetual(every=timedelta(seconds=…))"
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
        zone. Each further call returns the following time.

        docket schedules the task by this method, so a subclass can override it. Within a run, the
        times start after both the due time and the start of the run.
        """
        self._after = self.slot_after(self._after or datetime.now(UTC))
        return self._after

    def slot_after(self, moment: datetime) -> datetime:
        """The first time of the expression after a moment."""
        try:
            return next(self._iterator(moment.astimezone(self.tz)))
        except StopIteration:
            raise ValueError(f"Cron({self.expression!r}): the expression matches no time") from None

    def provide(self, execution: Execution, worker: WorkerContext) -> Self:
        """A copy that knows which time of the schedule this run is for."""
        bound = super().provide(execution, worker)
        bound._after = _reached(execution)
        return bound

    def _following(self, execution: Execution, outcome: TaskOutcome) -> tuple[timedelta | None, datetime | None]:
        # The body may have called next_time() itself. Those calls must not move the next run.
        return None, self._from(_reached(execution)).next_time()

    def _from(self, moment: datetime) -> Self:
        """A copy whose times begin after a moment."""
        copied = copy.copy(self)
        copied._after = moment
        return copied

    def _iterator(self, moment: datetime) -> CronSim:
        return CronSim(_NICKNAMES.get(self.expression.strip().lower(), self.expression), moment)


def _reached(execution: Execution) -> datetime:
    """The time from which the next time is computed. It is never before the run's own due time: a
    worker with a slow clock must not run the same time twice."""
    return max(execution.when, execution.started_at or execution.when)
