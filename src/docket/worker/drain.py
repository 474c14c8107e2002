"""The end of a worker: what runs may finish, the rest goes back, and nothing takes for ever."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .runs import CancelReason, Runs

logger: logging.Logger = logging.getLogger("docket.worker")


class LeaseView(Protocol):
    """What the end of a worker depends on."""

    @property
    def lapsed(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds after a hand-back: for a cancelled body to end, for its ending to be written."""

    body: float
    ending: float
    closes_bodies: bool = False


# After the grace period the worker should be gone in five
# seconds. The last of them is for leaving the roster.
USUAL = Patience(body=5.0, ending=4.0)
# Something the run needs is being closed, or the worker was told to
# stop again: its process should end in two seconds, in five if a body
# ignores its cancel. The rest of that time is for leaving the roster.
AT_ONCE = Patience(body=3.5, ending=1.2)
# The event loop waits for every task. A body that ignores its cancel gets a GeneratorExit.
LOOP_ENDS = Patience(body=3.5, ending=1.2, closes_bodies=True)
# However long others took before: so long bodies and endings get.
LEAST_SECONDS = 0.4
# Between two looks at the deadlines of a hand-back.
LOOK_SECONDS = 0.1


class Drain:
    """Waits for the runs within the grace period, then hands them back."""

    def __init__(self, runs: Runs, grace_seconds: float, lease: LeaseView) -> None:
        self._runs = runs
        self._grace_seconds = grace_seconds
        self._lease = lease
        self._patience = USUAL
        self._grace_until: float | None = None
        # From this moment the deadlines of a hand-back are counted.
        self.handed_back_at: float | None = None
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
        """Returns when nothing runs any more, or nothing can be done about it. True if it was
        cancelled meanwhile, which calls `requeue`."""
        interrupted = False
        deadline = time.monotonic() + self._grace_seconds if self._grace_until is None else self._grace_until
        self._announce()
        if self.handed_back_at is not None:
            # What began after the order was given goes back, too.
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
                self.hurry(since=deadline)
        return interrupted

    def hurry(self, patience: Patience = USUAL, *, since: float, least: float = LEAST_SECONDS) -> None:
        """Hands back what still runs. `since`: when the grace period was
        over, or when the end began for which this worker is one of several.
        However long ago that is, bodies and endings get `least` seconds."""
        now = time.monotonic()
        is_first = self.handed_back_at is None
        if is_first:
            self.handed_back_at = since
        # Told again in the same way, the deadlines stay:
        # else they would move on with every look at them.
        if is_first or (self._patience is USUAL and patience is not USUAL):
            self._patience, self._least = patience, least
            assert self.handed_back_at is not None
            self._bodies_until = max(self.handed_back_at + patience.body, now + least)
            self._endings_until = max(self.handed_back_at + patience.ending, now + least)
        if is_first:
            self._announce()
            self._runs.cancel_all(CancelReason.SHUTDOWN)

    def _pause(self, deadline: float) -> float:
        if self.handed_back_at is not None:
            return min(LOOK_SECONDS, self._least)
        return min(max(deadline - time.monotonic(), LOOK_SECONDS), 1.0)

    def _announce(self) -> None:
        bodies = len(self.bodies)
        if bodies and not self._is_announced:
            self._is_announced = True
            logger.info("Shutdown requested, finishing %d running task%s", bodies, "s" if bodies > 1 else "")

    def _is_hopeless(self) -> bool:
        """Whether waiting longer would change nothing: a body
        ignores its cancel, or endings cannot be written."""
        now, bodies = time.monotonic(), self.bodies
        if bodies:
            # However late they end, their endings get a moment.
            self._endings_until = max(self._endings_until, now + self._least)
            return now > self._bodies_until and not self._leave_behind(bodies)
        if self._lease.lapsed or now > self._endings_until:
            logger.error("%d ending(s) could not be written; others will run those tasks again", len(self._runs))
            return True
        return False

    def _leave_behind(self, bodies: set[asyncio.Task[None]]) -> bool:
        """True if they have ended all the same, so that they can be handed back."""
        logger.error("tasks that ignore their cancel are left behind: %s", ", ".join(self._runs.keys()))
        closed = [self._close(body) for body in bodies] if self._patience.closes_bodies else []
        for body in bodies:
            # Else asyncio.run, which waits for every task that it knows, would never end.
            asyncio._unregister_task(body)  # pyright: ignore[reportPrivateUsage]
        if not closed or not all(closed):
            return False
        self._endings_until = time.monotonic() + LEAST_SECONDS * 2
        return True

    def _close(self, body: asyncio.Task[None]) -> bool:
        try:
            body.get_coro().close()
        except RuntimeError:
            # It ignores this, too.
            return False
        body.cancel()
        return True
