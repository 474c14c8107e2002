"""The next run of a task that is running."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from docket.ledger import Failure, RunEnding, Settlement, reschedule
from docket.ledger.payloads import Payload
from docket.model.times import duration_ms, to_ms


@dataclass(slots=True)
class NextRun:
    """The next run of a task. A behaviour decides it,
    and the settlement of the current run stores it."""

    attempt: int
    delay: timedelta | None = None
    when: datetime | None = None
    function_name: str | None = None
    call: bytes | None = None

    def in_words(self) -> str:
        """When it begins, for a log: "at once", "in 2 s", "at 2026-01-31T12:00:00+00:00"."""
        if self.when is not None:
            return f"at {self.when.isoformat(timespec='seconds')}"
        seconds = self.delay.total_seconds() if self.delay is not None else 0.0
        if seconds <= 0:
            return "at once"
        if seconds < 1:
            return f"in {seconds * 1000:.3g} ms"
        return f"in {seconds:.3g} s" if seconds < 100 else f"in {round(seconds):,} s"

    def settlement(
        self,
        key: str,
        epoch: int,
        *,
        payload: Payload | None = None,
        is_delayed: bool = False,
        ending: RunEnding | None = None,
        failure: Failure | None = None,
    ) -> Settlement:
        """The settlement that ends the current run and schedules this one. `payload`: the call,
        stored apart. `is_delayed`: the current run has not begun, so the next run belongs to the
        same submission. `ending`: the ending of the current run, unless this is a retry.
        `failure`: the failure of the current run, if this is a retry."""
        return reschedule(
            key,
            epoch,
            attempt=self.attempt,
            delay_ms=duration_ms(self.delay) if self.delay is not None else 0,
            due_ms=to_ms(self.when) if self.when is not None else None,
            function_name=self.function_name,
            call=self.call,
            payload=payload,
            is_delayed=is_delayed,
            ending=ending,
            failure=failure,
        )
