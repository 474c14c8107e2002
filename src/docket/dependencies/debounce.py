"""One run after a burst of submissions."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from docket.ledger.limits import Limits, Verdict
from docket.model.times import format_duration

from .admission import Admission, Parked, keep, patiently, positive_ms, superseded
from .base import AdmissionBlocked
from .worker_view import current_docket, current_execution


class Debounce(Admission):
    """Waits until no submission has arrived for `settle`,
    and then lets one of them run; the others are cancelled.

    As a default it is for the whole task, as `Annotated` metadata for each value of the parameter.
    The run has the arguments of the first submission, with `latest=True` those of the last. Each
    submission needs a key of its own, since adding a key that waits changes nothing. Raises
    ValueError for a time that is not positive.
    """

    single = True
    rank = 0

    def __init__(self, settle: timedelta, *, scope: str | None = None, latest: bool = False) -> None:
        super().__init__(scope)
        self.settle = settle
        self.latest = latest
        self._settle_ms = positive_ms("Debounce", "settle", settle)

    async def __aenter__(self) -> Self:
        execution, book = current_execution.get(), Limits(current_docket.get().ledger)
        name = self.bound_name(execution)
        decision = await patiently(
            lambda: book.debounce(
                execution.key, execution.epoch, name, self._settle_ms, latest=self.latest, taken=execution.taken
            )
        )
        if decision.verdict is Verdict.LOST:
            raise superseded(execution)
        wait = timedelta(milliseconds=decision.wait_ms)
        if decision.verdict is Verdict.DROP:
            reason = f"a debounce{self.whose} (another submission waits)"
            if decision.overtaken:
                reason = "a debounce (another submission runs in its place)"
            raise AdmissionBlocked(execution, reason, reschedule=False, retry_delay=wait)
        if decision.verdict is Verdict.DELAY:
            to_go = format_duration(wait.total_seconds())
            raise Parked(execution, f"a debounce{self.whose}, at least {to_go} to go", retry_delay=wait)
        keep(execution, decision.taken)
        return self
