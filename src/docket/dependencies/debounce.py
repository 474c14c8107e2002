"""One run after a burst of submissions."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import Self

from docket.ledger.limits import LimitBook, Verdict

from .admission import Admission, PutAway, if_possible, patiently, positive_ms, superseded
from .base import AdmissionBlocked
from .context import current_docket, current_execution
from .durations import format_duration


class Debounce(Admission):
    """Waits until no submission has arrived for `settle`, and then lets one of them run; the others are cancelled.

    As a default it is for the whole task, as `Annotated` metadata for each value of the parameter. The run has the
    arguments of the first submission, with `latest=True` those of the last. Each submission needs a key of its own,
    since adding a key that waits changes nothing. Raises ValueError for a time that is not positive.
    """

    single = True
    rank = 0

    def __init__(self, settle: timedelta, *, scope: str | None = None, latest: bool = False) -> None:
        super().__init__(scope)
        self.settle = settle
        self.latest = latest
        self._settle_ms = positive_ms("Debounce", "settle", settle)
        self._let_through: tuple[str, bytes] | None = None

    async def __aenter__(self) -> Self:
        execution, book = current_execution.get(), LimitBook(current_docket.get().ledger)
        name = self.bound_name(execution)
        decision = await patiently(
            lambda: book.debounce(execution.key, execution.epoch, name, self._settle_ms, latest=self.latest)
        )
        if decision.verdict is Verdict.LOST:
            raise superseded(execution)
        if decision.verdict is Verdict.DROP:
            raise AdmissionBlocked(execution, f"a debounce{self.whose} (another submission waits)", reschedule=False)
        if decision.verdict is Verdict.PUT_OFF:
            wait = timedelta(milliseconds=decision.wait_ms)
            to_go = format_duration(wait.total_seconds())
            raise PutAway(execution, f"a debounce{self.whose}, at least {to_go} to go", retry_delay=wait)
        self._let_through = (name, decision.receipt) if decision.receipt else None
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(exc_value, AdmissionBlocked) and self._let_through is not None:
            book, let_through, key = (
                LimitBook(current_docket.get().ledger),
                self._let_through,
                current_execution.get().key,
            )
            await if_possible(lambda: book.keep_debounced(key, *let_through))
