"""Drains a worker: lets runs finish within the grace
period, then requeues the rest in bounded time."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from .lease.lease import LeaseView
from .running.runs import CancelReason, Runs

logger: logging.Logger = logging.getLogger("docket.worker")


@dataclass(frozen=True, slots=True)
class RequeueDeadlines:
    """Seconds after the requeue began until cancelled bodies must have ended, and until their
    endings must be written."""

    body: float
    ending: float
    closes_bodies: bool = False


# The process should end within five seconds after the grace
# period. The last second is for leaving the fleet and for the exit.
USUAL = RequeueDeadlines(body=4.0, ending=4.0)
# For a worker whose docket closes, or that was asked twice to stop. Its process
# should end within two seconds, or within five if a body ignores its cancel. The rest of that time
# is for leaving the fleet.
AT_ONCE = RequeueDeadlines(body=3.5, ending=1.2)
# An event loop that ends waits for every task, so a
# body that ignores its cancel gets a GeneratorExit.
LOOP_ENDS = RequeueDeadlines(body=3.5, ending=1.2, closes_bodies=True)
# Bodies and endings get at least this long, even if the end of other workers used up the time.
LEAST_SECONDS = 0.4
# Between two checks of the deadlines.
CHECK_SECONDS = 0.1


class Drain:
    """Waits for the runs within the grace period, then requeues them."""

    def __init__(self, runs: Runs, grace_seconds: float, lease: LeaseView) -> None:
        self._runs = runs
        self._grace_seconds = grace_seconds
        self._lease = lease
        self._deadlines = USUAL
        self._grace_until: float | None = None
        # The deadlines count from this time.
        self.requeued_at: float | None = None
        self._least = LEAST_SECONDS
        self._bodies_until = self._endings_until = math.inf
        self._is_announced = False

    @property
    def bodies(self) -> set[asyncio.Task[None]]:
        return self._runs.tasks()

    def begin(self) -> None:
        """The grace period begins."""
        self._grace_until = time.monotonic() + self._grace_seconds

    async def run(self, requeue: Callable[[], None]) -> bool:
        """Returns when nothing runs any more, or when waiting longer is pointless. A cancel calls
        `requeue`; then the result is True."""
        interrupted = False
        deadline = time.monotonic() + self._grace_seconds if self._grace_until is None else self._grace_until
        self._announce()
        if self.requeued_at is not None:
            # Also requeue runs that began after the first requeue.
            self._runs.cancel_all(CancelReason.SHUTDOWN)
        while len(self._runs) and not self._is_hopeless():
            waiting = asyncio.ensure_future(self._runs.wait_idle())
            try:
                await asyncio.wait([waiting], timeout=self._pause(deadline))
            except asyncio.CancelledError:
                interrupted = True
                requeue()
            finally:
                waiting.cancel()
            if time.monotonic() >= deadline:
                self.requeue(since=deadline)
        return interrupted

    def requeue(self, deadlines: RequeueDeadlines = USUAL, *, since: float, least: float = LEAST_SECONDS) -> None:
        """Cancels and requeues the tasks that still run.

        The deadlines count from `since`: the end of the grace period, or the time at which several
        workers began to end together. Bodies and endings get at least `least` seconds from now.
        """
        now = time.monotonic()
        is_first = self.requeued_at is None
        if is_first:
            self.requeued_at = since
        # A repeated call must not extend the deadlines: `run` repeats it at every check.
        if is_first or (self._deadlines is USUAL and deadlines is not USUAL):
            self._deadlines, self._least = deadlines, least
            assert self.requeued_at is not None
            self._bodies_until = max(self.requeued_at + deadlines.body, now + least)
            self._endings_until = max(self.requeued_at + deadlines.ending, now + least)
        if is_first:
            self._announce()
            self._runs.cancel_all(CancelReason.SHUTDOWN)

    def _pause(self, deadline: float) -> float:
        if self.requeued_at is not None:
            return min(CHECK_SECONDS, self._least)
        return min(max(deadline - time.monotonic(), CHECK_SECONDS), 1.0)

    def _announce(self) -> None:
        bodies = len(self.bodies)
        if bodies and not self._is_announced:
            self._is_announced = True
            logger.info("Shutdown requested, finishing %d running task%s", bodies, "s" if bodies > 1 else "")

    def _is_hopeless(self) -> bool:
        """Whether waiting longer is pointless: a body
        ignores its cancel, or endings cannot be written."""
        now, bodies = time.monotonic(), self.bodies
        if bodies:
            # Endings get their minimum time, however late the bodies end.
            self._endings_until = max(self._endings_until, now + self._least)
            return now > self._bodies_until and not self._leave_behind(bodies)
        if self._lease.lapsed or now > self._endings_until:
            logger.error("%d ending(s) could not be written; other workers will run those tasks again", len(self._runs))
            return True
        return False

    def _leave_behind(self, bodies: set[asyncio.Task[None]]) -> bool:
        """Gives up on bodies that ignore their cancel. True if closing them has ended them all, so
        that their tasks can be requeued."""
        logger.error("tasks that ignore their cancel are left behind: %s", ", ".join(self._runs.keys()))
        closed = [self._close(body) for body in bodies] if self._deadlines.closes_bodies else []
        for body in bodies:
            # asyncio.run waits for every registered task and would never end.
            asyncio._unregister_task(body)  # pyright: ignore[reportPrivateUsage]
        if not closed or not all(closed):
            return False
        self._endings_until = time.monotonic() + LEAST_SECONDS * 2
        return True

    def _close(self, body: asyncio.Task[None]) -> bool:
        try:
            body.get_coro().close()
        except RuntimeError:
            # The body ignores GeneratorExit, too.
            return False
        body.cancel()
        return True
