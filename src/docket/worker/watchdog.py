"""Watches the event loop from the renewal thread: a lease is of use only while the loop runs."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from docket.ledger import Ledger

from .lease import Lease
from .occupation import Occupation
from .server_clock import steady_seconds

logger: logging.Logger = logging.getLogger("docket.worker")

# An event loop that owes an answer for so long is not counted on for the next tasks.
LOOP_BLOCKED_SECONDS = 0.5
# After so long the worker says which code blocks the loop.
REPORT_SECONDS = 2.0
# So long a loop that does not run may stand still between two calls of run_until_complete.
LEAST_WAIT_FOR_LOOP = 2.0


class Watchdog:
    """Asks the event loop for an answer, again and again, and measures how long the loop owes one.

    It is built in the thread of the event loop; `step` runs in the renewal thread.
    """

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        client: Callable[[], Any],
        occupation: Callable[[], Occupation],
        tell: Callable[..., None],
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._client = client
        self._occupation = occupation
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._loop_ran_at = steady_seconds()
        # None while the loop owes no answer.
        self._asked_at: float | None = None
        self._is_reported = False

    @property
    def loop_lag(self) -> float:
        """How long the event loop has owed an answer, in seconds. Safe to call from any thread."""
        asked_at = self._asked_at
        return 0.0 if asked_at is None else steady_seconds() - asked_at

    @property
    def loop_is_closed(self) -> bool:
        return self._loop.is_closed()

    def loop_may_go_on(self) -> bool:
        """Whether the event loop may still use the lease.
        A loop that is blocked runs all the same."""
        if self._loop.is_running():
            self._loop_ran_at = steady_seconds()
        waited = steady_seconds() - self._loop_ran_at
        return not self.loop_is_closed and waited < max(self._lease.length_ms / 1000, LEAST_WAIT_FOR_LOOP)

    def step(self) -> None:
        """If the loop is blocked, tasks that the server has
        sent and nobody here reads go to other workers."""
        if self.loop_lag > LOOP_BLOCKED_SECONDS:
            self._release_unread()

    def _release_unread(self) -> None:
        occupation = self._occupation()
        released = self._ledger.release_unread(self._client(), self._lease.worker, occupation.runs, occupation.reading)
        if released:
            logger.warning("the event loop is blocked: %d task(s) that it has not read go to other workers", released)

    def ask(self) -> None:
        """Asks the loop for its next answer. If it has owed
        one for long, says once which code holds it up."""
        if self._asked_at is None:
            self._asked_at = steady_seconds()
            self._tell(self._answered)
        elif self.loop_lag > REPORT_SECONDS and not self._is_reported:
            self._is_reported = True
            self._report()

    def _report(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(no stack)"
        logger.warning(
            "the event loop has been blocked for %.1f s: no other task can run meanwhile. Blocking code:\n%s",
            self.loop_lag,
            stack,
        )

    def _answered(self) -> None:
        self._asked_at = None
        self._is_reported = False
