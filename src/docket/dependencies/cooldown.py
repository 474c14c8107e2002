"""A pause after a run in which others are dropped."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from docket.ledger.limits import Limits, Verdict
from docket.model.times import format_duration

from .admission import Admission, keep, patiently, positive_ms, superseded
from .base import AdmissionBlocked
from .worker_view import current_docket, current_execution


class Cooldown(Admission):
    """Lets the first run begin and cancels the others until `window` has passed since.

    As a default it is for the whole task, as `Annotated` metadata for each value of the parameter.
    The run that opened the window is never dropped by it: its retries and redeliveries are let in.
    Raises ValueError for a window that is not positive.
    """

    rank = 1

    def __init__(self, window: timedelta, *, scope: str | None = None) -> None:
        self._window_ms = positive_ms("Cooldown", "window", window)
        super().__init__(scope, variant=self._window_ms)
        self.window = window

    async def __aenter__(self) -> Self:
        execution, book = current_execution.get(), Limits(current_docket.get().ledger)
        name = self.bound_name(execution)
        decision = await patiently(
            lambda: book.cool_down(execution.key, execution.epoch, name, self._window_ms, taken=execution.taken)
        )
        if decision.verdict is Verdict.LOST:
            raise superseded(execution)
        if decision.verdict is Verdict.DROP:
            left = timedelta(milliseconds=decision.wait_ms)
            reason = f"a cooldown{self.whose} ({format_duration(left.total_seconds())} left)"
            raise AdmissionBlocked(execution, reason, reschedule=False, retry_delay=left)
        keep(execution, decision.taken)
        return self
