"""A limit on the number of runs that begin within a time window."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from docket.execution.context import current_docket, current_execution
from docket.ledger.limits import Verdict
from docket.model.times import format_duration

from .admission import Admission, SettledByLimit, ask_until_answered, keep, positive_count, positive_ms, superseded
from .base import AdmissionBlocked


class RateLimit(Admission):
    """Allows at most `limit` runs to begin within any
    period of length `per`, by the server's clock.

    As a parameter's default it applies to the whole task, as `Annotated` metadata
    to each value of the parameter. Excess tasks are delayed until the limit admits
    them, in order of arrival. With `drop=True` they are cancelled instead. Failed
    runs count, and a retry counts again. A run that another dependency blocks does
    not count. Raises ValueError for a limit or a period that is not positive.
    """

    rank = 2

    def __init__(self, limit: int, *, per: timedelta, drop: bool = False, scope: str | None = None) -> None:
        self._per_ms = positive_ms("RateLimit", "per", per)
        super().__init__(scope, variant=self._per_ms)
        self.limit: int = positive_count("RateLimit", "limit", limit)
        self.per = per
        self.drop = drop

    async def __aenter__(self) -> Self:
        execution, limits = current_execution.get(), current_docket.get().ledger.limits
        name = self.bound_name(execution)
        decision = await ask_until_answered(
            lambda: limits.rate(
                execution.key, execution.epoch, name, self.limit, self._per_ms, drop=self.drop, taken=execution.taken
            )
        )
        if decision.verdict is Verdict.LOST:
            raise superseded(execution)
        wait = timedelta(milliseconds=decision.wait_ms)
        if decision.verdict is Verdict.DROP:
            raise AdmissionBlocked(execution, self._reason, reschedule=False, retry_delay=wait)
        if decision.verdict is Verdict.DELAY:
            due = format_duration(wait.total_seconds())
            raise SettledByLimit(execution, f"{self._reason}, due in {due}", retry_delay=wait)
        keep(execution, decision.taken)
        return self

    @property
    def _reason(self) -> str:
        return f"a rate limit of {self.limit} per {format_duration(self.per.total_seconds())}{self._for_each}"
