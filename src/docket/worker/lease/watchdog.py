"""Watches the event loop from the renewal thread: a lease is useful only while the loop runs."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from docket.ledger import Ledger

from .lease import Lease, steady_seconds
from .lease_events import LeaseEvents

logger: logging.Logger = logging.getLogger("docket.worker")

# After this long without a response from the event loop, unread deliveries go to other workers.
LOOP_BLOCKED_SECONDS = 0.5
# After this long the watchdog logs the code that blocks the loop.
REPORT_SECONDS = 2.0
# The lease is kept for at least this long while the loop
# does not run, as between two calls of run_until_complete.
LEAST_WAIT_FOR_LOOP = 2.0


class Watchdog:
    """Pings the event loop at intervals and measures how long the loop takes to respond.

    The constructor runs in the thread of the event loop; `step` and `ping` run in the renewal
    thread.
    """

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        client: Callable[[], Any],
        events: LeaseEvents,
        call_in_loop: Callable[..., None],
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._client = client
        self._events = events
        self._call_in_loop = call_in_loop
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._loop_ran_at = steady_seconds()
        # None while no ping is open.
        self._pinged_at: float | None = None
        self._is_reported = False
        # How long the loop took to answer the last ping.
        self._last_lag = 0.0

    @property
    def recent_lag(self) -> float:
        """How long the event loop took to answer the last ping, or has not answered yet."""
        return max(self._last_lag, self.loop_lag)

    @property
    def loop_lag(self) -> float:
        """Seconds since the ping that the event loop has
        not answered yet. Safe to call from any thread."""
        pinged_at = self._pinged_at
        return 0.0 if pinged_at is None else steady_seconds() - pinged_at

    @property
    def loop_is_closed(self) -> bool:
        return self._loop.is_closed()

    def loop_may_continue(self) -> bool:
        """Whether the event loop may still use the lease. A blocked loop counts as running."""
        if self._loop.is_running():
            self._loop_ran_at = steady_seconds()
        waited = steady_seconds() - self._loop_ran_at
        return not self.loop_is_closed and waited < max(self._lease.length_ms / 1000, LEAST_WAIT_FOR_LOOP)

    def step(self) -> None:
        """If the loop is blocked, releases the deliveries that it has not read, and the prefetched
        runs, to other workers."""
        if self.loop_lag > LOOP_BLOCKED_SECONDS:
            self._requeue_prefetched()
            self._put_back_unclaimed()

    def _requeue_prefetched(self) -> None:
        runs = self._events.take_prefetched()
        if not runs:
            return
        try:
            own = [(run.key, run.epoch) for run in runs if run.worker == self._lease.worker]
            self._ledger.tasks.requeue_blocking(self._client(), self._lease.worker, own)
            logger.warning("the event loop is blocked: %d prefetched task(s) go to other workers", len(own))
        finally:
            # The loop forgets the runs. If the server was not reached, it requeues them.
            for run in runs:
                self._call_in_loop(self._events.requeue, run)

    def _put_back_unclaimed(self) -> None:
        activity = self._events.activity()
        put_back = self._ledger.fleet.put_back_unclaimed(
            self._client(), self._lease.worker, activity.runs, activity.reading
        )
        if put_back:
            logger.warning("the event loop is blocked: %d task(s) that it has not read go to other workers", put_back)

    def ping(self) -> None:
        """Sends the next ping. If the last one is unanswered
        for long, logs once which code blocks the loop."""
        if self._pinged_at is None:
            self._pinged_at = steady_seconds()
            self._call_in_loop(self._answered)
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
        self._last_lag, self._pinged_at = self.loop_lag, None
        self._is_reported = False
