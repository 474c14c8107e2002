"""The end of a worker: what runs may finish, the rest goes back, and nothing takes for ever."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from .runs import CancelReason, Runs

logger = logging.getLogger("docket.worker")

# How long a cancelled body may take to end before the worker stops without it.
HAND_BACK_SECONDS = 5.0


class Draining:
    """Waits for the runs within the grace period, then hands them back."""

    def __init__(self, runs: Runs, grace_seconds: float, is_lapsed: Callable[[], bool]) -> None:
        self._runs = runs
        self._grace_seconds = grace_seconds
        self._is_lapsed = is_lapsed
        self._handed_back_at: float | None = None

    async def run(self) -> bool:
        """Returns when nothing runs any more, or nothing can be done about it. True if it was cancelled meanwhile."""
        interrupted = False
        deadline = time.monotonic() + self._grace_seconds
        while len(self._runs) and not self._is_hopeless():
            waiting = asyncio.ensure_future(self._runs.wait_idle())
            try:
                await asyncio.wait([waiting], timeout=min(max(deadline - time.monotonic(), 0.1), 1.0))
            except asyncio.CancelledError:
                interrupted = True
                self.hurry()
            finally:
                waiting.cancel()
            if time.monotonic() >= deadline:
                self.hurry()
        return interrupted

    def hurry(self) -> None:
        """Hands back what still runs."""
        if self._handed_back_at is None:
            self._handed_back_at = time.monotonic()
            self._runs.cancel_all(CancelReason.SHUTDOWN)

    def _is_hopeless(self) -> bool:
        """Whether waiting longer would change nothing: a body ignores its cancel, or endings cannot be written."""
        if self._runs.tasks():
            late = self._handed_back_at is not None and time.monotonic() - self._handed_back_at > HAND_BACK_SECONDS
            if late:
                logger.error("tasks that ignore their cancel are left behind: %s", ", ".join(self._runs.keys()))
            return late
        if self._is_lapsed():
            logger.error("%d ending(s) could not be written; others will run those tasks again", len(self._runs))
            return True
        return False
