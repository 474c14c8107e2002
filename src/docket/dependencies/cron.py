"""Tasks that run by the clock on the wall."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from cronsim import CronSim, CronSimError

from .base import TaskOutcome
from .perpetual import Perpetual

if TYPE_CHECKING:
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
    """Runs at the times of a cron expression (five fields, or @hourly and its like), in a time zone, DST included.

    A run that is still going when its next time comes is followed by that one, at once; of several missed times only the
    last is made up for.
    """

    def __init__(self, expression: str, automatic: bool = True, tz: tzinfo = UTC) -> None:
        super().__init__(automatic=automatic)
        self.expression = expression
        self.tz = tz
        try:
            self._iterator(datetime.now(tz))
        except CronSimError as error:
            raise ValueError(f"Cron({expression!r}): not a cron expression: {error}") from None

    @property
    def initial_when(self) -> datetime | None:
        return self.slot_after(datetime.now(UTC))

    def first_time(self, now: datetime) -> datetime | None:
        return self.slot_after(now)

    def slot_after(self, moment: datetime) -> datetime:
        """The first time of the expression after a moment."""
        try:
            return next(self._iterator(moment.astimezone(self.tz)))
        except StopIteration:
            raise ValueError(f"Cron({self.expression!r}): there is no such time") from None

    def next_time(self, execution: Execution, outcome: TaskOutcome) -> tuple[timedelta | None, datetime | None]:
        now = self._worker.now() if self._worker is not None else datetime.now(UTC)
        slot = self.slot_after(min(execution.when, now))
        following = slot
        while following <= now:
            slot, following = following, self.slot_after(following)
        return None, slot

    def _iterator(self, moment: datetime) -> CronSim:
        return CronSim(_NICKNAMES.get(self.expression.strip().lower(), self.expression), moment)
