"""A limit on how many runs begin within a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from docket.ledger.limits import Limits, Verdict
from docket.model.times import format_duration

from .admission import Admission, Parked, keep, patiently, positive_count, positive_ms, superseded
from .base import AdmissionBlocked
from .worker_view import current_docket, current_execution


class RateLimit(Admission):
    """Lets at most `limit` runs begin within any time of length `per`, on the server's clock.

    As a default it is for the whole task, as `Annotated` metadata for each value of
    the parameter. What is too much is put off to when its turn comes, in order of
    arrival; with `drop=True` it is cancelled. A run that fails has used its place,
    and a retry needs another; a run that something else keeps from beginning gives
    it back. Raises ValueError for a limit or a time that is not positive.
    """

    rank = 2

    def __init__(self, limit: int, *, per: timedelta, drop: bool = False, scope: str | None = None) -> None:
        self._per_ms = positive_ms("RateLimit", "per", per)
        super().__init__(scope, variant=self._per_ms)
        self.limit: int = positive_count("RateLimit", "limit", limit)
        self.per = per
        self.drop = drop

    async def __aenter__(self) -> Self:
        execution, book = current_execution.get(), Limits(current_docket.get().ledger)
        name = self.bound_name(execution)
        decision = await patiently(
            lambda: book.rate(
                execution.key, execution.epoch, name, self.limit, self._per_ms, drop=self.drop, taken=execution.taken
            )
        )
        if decision.verdict is Verdict.LOST:
            raise superseded(execution)
        wait = timedelta(milliseconds=decision.wait_ms)
        if decision.verdict is Verdict.DROP:
            raise AdmissionBlocked(execution, self._reason, reschedule=False, retry_delay=wait)
        if decision.verdict is Verdict.DELAY:
            turn = f"its turn comes in {format_duration(wait.total_seconds())}"
            raise Parked(execution, f"{self._reason}, {turn}", retry_delay=wait)
        keep(execution, decision.taken)
        return self

    @property
    def _reason(self) -> str:
        return f"a rate limit of {self.limit} per {format_duration(self.per.total_seconds())}{self.whose}"
