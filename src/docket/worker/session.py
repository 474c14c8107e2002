"""One call of `run_forever()` or a similar method: other code can stop it and wait for its end.
When it stops, runs may finish within the grace period; the rest is requeued in bounded time."""

from __future__ import annotations

import asyncio
import enum
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from docket.attached import AttachedWorkers

from .lease.lease import LeaseView
from .running.runs import CancelReason, Runs

logger: logging.Logger = logging.getLogger("docket.worker")


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds until each step of a stop must be done.

    From the start of the stop: the services have stopped, the offer of a slot is withdrawn. From
    the requeue of the runs that have not finished: cancelled bodies have ended, their endings are
    written. From the requeue, or from the start if all runs finish: the worker has left the fleet.
    """

    services: float
    withdraw: float
    bodies: float
    endings: float
    leave: float
    # A body that ignores its cancel gets a GeneratorExit.
    closes_bodies: bool = False


# The process should end within five seconds after the grace period. The last second is for leaving
# the fleet; of that, the last half second is for the exit of the interpreter, and of a supervisor.
USUAL = Deadlines(services=2.0, withdraw=3.0, bodies=4.0, endings=4.0, leave=4.5)
# For a worker that has to end at once: its docket closes, or it was asked twice to stop. Its
# process should end within two seconds, or within five if a body ignores its cancel.
AT_ONCE = Deadlines(services=0.6, withdraw=1.0, bodies=3.5, endings=1.2, leave=1.8)
# An event loop that ends waits for every task.
LOOP_ENDS = replace(AT_ONCE, closes_bodies=True)
# The minimum for each wait, even if the end of other workers used up the time. The second value is
# for a worker whose server did not answer the worker that ended just before it.
LEAST_SECONDS, SILENT_SECONDS = 0.4, 0.05
# The minimum for leaving the fleet, if all tasks of the worker have finished.
LEAVE_SECONDS = 1.5
# Between two checks of the deadlines while runs are requeued.
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

    def requeue(self, deadlines: Deadlines = USUAL, *, since: float, least: float = LEAST_SECONDS) -> None:
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
            self._bodies_until = max(self.requeued_at + deadlines.bodies, now + least)
            self._endings_until = max(self.requeued_at + deadlines.endings, now + least)
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


class Phase(enum.Enum):
    """The state of a session. The request to stop is separate from it."""

    SETTING_UP = enum.auto()
    SERVING = enum.auto()
    # The worker claims nothing more; runs may finish.
    DRAINING = enum.auto()
    OVER = enum.auto()


class WorkerSession:
    """A session ends by itself, when the worker or its docket closes, or with its event loop."""

    def __init__(self, on_abandoned: Callable[[], None], attached: AttachedWorkers) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._phase = Phase.SETTING_UP
        self._stop_requested = asyncio.Event()
        self._on_abandoned = on_abandoned
        self._attached = attached
        self._over = asyncio.Event()
        # None during set-up.
        self._drain: Drain | None = None
        # When the stop began.
        self._stop_began_at: float | None = None
        # From when the deadlines count, if the worker has to end at once.
        self._at_once_since: float | None = None

    @property
    def is_over(self) -> bool:
        return self._phase is Phase.OVER

    @property
    def is_working(self) -> bool:
        """Whether the services run, or the worker drains."""
        return self._phase in (Phase.SERVING, Phase.DRAINING)

    @property
    def is_stopping(self) -> bool:
        """Whether the worker drains or was asked to stop. Safe to call from any thread."""
        return self._stop_requested.is_set() or self._phase is Phase.DRAINING

    def begin(self, drain: Drain) -> None:
        """Set-up is done, and the worker serves."""
        self._phase = Phase.SERVING
        self._drain = drain

    async def wait_for_stop(self) -> None:
        await self._stop_requested.wait()

    def stop(self) -> None:
        """Asks the worker to finish the running tasks and return.
        A second call requeues the tasks that still run."""
        if self._stop_requested.is_set() and self.is_working:
            self.requeue()
        self._end_set_up()
        self._stop_requested.set()

    def begin_stop(self) -> None:
        """The worker stops, and the grace period begins."""
        self._phase = Phase.DRAINING
        self._stop_began_at = time.monotonic()
        if self._drain is not None:
            self._drain.begin()

    def finish(self) -> None:
        """The call of `run_forever()` returns."""
        self._leave_loop()
        self._over.set()

    def _leave_loop(self) -> None:
        self._phase = Phase.OVER
        self._drain = None

    async def end(self, *, at_once: bool) -> None:
        """Ends the session and returns when it is over.
        Runs get the grace period, or are requeued at once.

        If the caller is cancelled, the runs are requeued at
        once, and the cancel is raised when the session is over.
        """
        if self.is_over:
            return
        if self._loop is not asyncio.get_running_loop():
            self._end_from_another_loop()
            return
        self._request_end(at_once)
        if self.is_inside():
            return
        interrupted: asyncio.CancelledError | None = None
        while not self._over.is_set():
            try:
                await self._over.wait()
            except asyncio.CancelledError as error:
                interrupted = error
                self._request_end(at_once=True)
        if interrupted is not None:
            raise interrupted

    def requeue(self, *, loop_ends: bool = False) -> None:
        """Requeues now all tasks that still run."""
        if self._at_once_since is None:
            self._at_once_since = self._attached.end_began()
        if self._drain is not None:
            self._drain.requeue(LOOP_ENDS if loop_ends else AT_ONCE, since=self._at_once_since, least=self._least)

    @property
    def _least(self) -> float:
        return SILENT_SECONDS if self._attached.is_silent else LEAST_SECONDS

    def _deadlines(self) -> tuple[float, Deadlines]:
        """The deadlines that apply, and the time from which they count."""
        if self._at_once_since is not None:
            return self._at_once_since, AT_ONCE
        return time.monotonic() if self._stop_began_at is None else self._stop_began_at, USUAL

    def services_are_late(self) -> bool:
        """Whether the stop has to continue without waiting for the services."""
        start, deadlines = self._deadlines()
        return time.monotonic() > start + deadlines.services

    def seconds_to_withdraw(self) -> float:
        """Seconds until the stop has to continue even if the offer is not withdrawn."""
        start, deadlines = self._deadlines()
        return max(start + deadlines.withdraw - time.monotonic(), self._least)

    def seconds_to_leave(self) -> float:
        """Seconds until the worker should have left the fleet."""
        start, deadlines = self._deadlines()
        least = self._least
        if self._at_once_since is None:
            requeued_at = self._drain.requeued_at if self._drain is not None else None
            start, least = (start, LEAVE_SECONDS) if requeued_at is None else (requeued_at, LEAST_SECONDS)
        return max(start + deadlines.leave - time.monotonic(), least)

    def _end_set_up(self) -> None:
        """Cancels set-up: nothing runs yet, and a server or a dependency may take long to open."""
        if self._phase is Phase.SETTING_UP and self._task is not None:
            self._task.cancel()

    def _request_end(self, at_once: bool) -> None:
        self._stop_requested.set()
        if at_once:
            self.requeue()
        self._end_set_up()

    def is_inside(self) -> bool:
        """Whether the caller is a task body of this session.
        Such a body cannot wait for its own worker."""
        if self.is_over:
            return False
        current = asyncio.current_task()
        bodies = self._drain.bodies if self._drain is not None else ()
        return current is self._task or current in bodies

    def _end_from_another_loop(self) -> None:
        """The caller runs in another event loop. If the session's
        own loop is closed, the session never continues."""
        if self._loop.is_closed():
            self._on_abandoned()
            self._leave_loop()
        else:
            self._loop.call_soon_threadsafe(self._request_end, True)


# Cancels of the asyncio task that runs the worker. Such a cancel stops the worker.


def raise_pending_cancel() -> None:
    """Raises a cancel that the client library swallowed during set-up (see docket._aio)."""
    current = asyncio.current_task()
    if current is not None and current.cancelling():
        raise asyncio.CancelledError


def clear_pending_cancels() -> None:
    """Clears all pending cancels: a cancelled worker returns normally after it has stopped."""
    current = asyncio.current_task()
    while current is not None and current.cancelling():
        current.uncancel()
