"""A limit that runs one task after a burst of submissions."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from docket.execution.context import current_docket, current_execution
from docket.ledger.limits import Verdict
from docket.model.times import format_duration

from .admission import Admission, SettledByLimit, ask_until_answered, keep, positive_ms, superseded
from .base import AdmissionBlocked


class Debounce(Admission):
    """Waits until no submission has arrived for `settle`. Then
    it runs one of the submissions and cancels the others.

    As a parameter's default it applies to the whole task, as `Annotated` metadata to each value of
    the parameter. The run has the arguments of the first submission, or of the last one with
    `latest=True`. Each submission needs its own key, because adding a key that is already waiting
    has no effect. Raises ValueError for a time that is not positive.
    """

    single = True
    rank = 0

    def __init__(self, settle: timedelta, *, scope: str | None = None, latest: bool = False) -> None:
        super().__init__(scope)
        self.settle = settle
        self.latest = latest
        self._settle_ms = positive_ms("Debounce", "settle", settle)

    async def __aenter__(self) -> Self:
        execution, limits = current_execution.get(), current_docket.get().ledger.limits
        name = self.bound_name(execution)
        decision = await ask_until_answered(
            lambda: limits.debounce(
                execution.key, execution.epoch, name, self._settle_ms, latest=self.latest, taken=execution.taken
            )
        )
        if decision.verdict is Verdict.LOST:
            raise superseded(execution)
        wait = timedelta(milliseconds=decision.wait_ms)
        if decision.verdict is Verdict.DROP:
            reason = f"a debounce{self._for_each} (another submission waits)"
            if decision.overtaken:
                reason = "a debounce (another submission runs instead)"
            raise AdmissionBlocked(execution, reason, reschedule=False, retry_delay=wait)
        if decision.verdict is Verdict.DELAY:
            left = format_duration(wait.total_seconds())
            raise SettledByLimit(execution, f"a debounce{self._for_each}, at least {left} left", retry_delay=wait)
        keep(execution, decision.taken)
        return self
