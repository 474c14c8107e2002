"""A limit that drops further runs for a time after each run."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from docket.execution.context import current_docket, current_execution
from docket.ledger.limits import Verdict
from docket.model.times import format_duration

from .admission import Admission, ask_until_answered, keep, positive_ms, superseded
from .base import AdmissionBlocked


class Cooldown(Admission):
    """Admits the first run and cancels all further tasks until `window` has passed.

    As a parameter's default it applies to the whole task, as `Annotated` metadata to each value of
    the parameter. A window never drops the task that opened it: retries and redeliveries of that
    task are admitted. Raises ValueError for a window that is not positive.
    """

    rank = 1

    def __init__(self, window: timedelta, *, scope: str | None = None) -> None:
        self._window_ms = positive_ms("Cooldown", "window", window)
        super().__init__(scope, variant=self._window_ms)
        self.window = window

    async def __aenter__(self) -> Self:
        execution, limits = current_execution.get(), current_docket.get().ledger.limits
        name = self.bound_name(execution)
        decision = await ask_until_answered(
            lambda: limits.cool_down(execution.key, execution.epoch, name, self._window_ms, taken=execution.taken)
        )
        if decision.verdict is Verdict.LOST:
            raise superseded(execution)
        if decision.verdict is Verdict.DROP:
            left = timedelta(milliseconds=decision.wait_ms)
            reason = f"a cooldown{self._for_each} ({format_duration(left.total_seconds())} left)"
            raise AdmissionBlocked(execution, reason, reschedule=False, retry_delay=left)
        keep(execution, decision.taken)
        return self
