"""Mistakes with clocks: workers whose wall clock is wrong decide by it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from docket.dependencies import cron
from docket.ledger.settlements import reschedule

from .base import BrokenBuild, change_function


class DueTimesByWorkerClock(BrokenBuild):
    """The worker computes the time of a retry itself."""

    name = "worker clock for due times"
    work = ("retrying",)
    clocks = (-120.0,)
    seconds = 6.0

    def apply(self) -> None:
        def by_own_clock(*args: Any, delay_ms: float | None = None, due_ms: float | None = None, **more: Any) -> Any:
            if due_ms is None:
                due_ms = time.time() * 1000 + (delay_ms or 0)
            return reschedule(*args, due_ms=due_ms, **more)

        change_function(reschedule, by_own_clock)


class CronByWorkerClock(BrokenBuild):
    """The next time of a cron task follows the worker's clock."""

    name = "cron from the worker's clock"
    work = ("plain",)
    clocks = (-120.0,)
    seconds = 6.0

    def apply(self) -> None:
        def reached(execution: Any) -> datetime:
            return datetime.now(UTC)

        change_function(vars(cron)["_reached"], reached)
