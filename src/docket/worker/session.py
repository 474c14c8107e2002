"""One call of `run_forever()` or a similar method: other code can stop it and wait for its end."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable
from dataclasses import dataclass

from docket.attached import AttachedWorkers

from .drain import AT_ONCE, LOOP_ENDS, Drain


@dataclass(frozen=True, slots=True)
class StopDeadlines:
    """Seconds from the start of a stop until each step must be done: the services have stopped, the
    offer is withdrawn, and the worker has left the fleet."""

    services: float
    withdraw: float
    leave: float


# `leave` counts from the end of the grace period. The process should end within five seconds: the
# last half second is for the exit of the interpreter, and of a supervisor.
USUAL = StopDeadlines(services=2.0, withdraw=3.0, leave=4.5)
# For a worker that has to end at once.
AT_ONCE_DEADLINES = StopDeadlines(services=0.6, withdraw=1.0, leave=1.8)
# The minimum for each wait. The second value is for a worker whose server did not answer the worker
# that ended just before it.
LEAST_SECONDS, SILENT_SECONDS = 0.4, 0.05
# The minimum for leaving the fleet, if all tasks of the worker have finished.
LEAVE_SECONDS = 1.5


class Phase(enum.Enum):
    """The state of a session. The request to stop is separate from it."""

    SETTING_UP = enum.auto()
    SERVING = enum.auto()
    # The worker claims nothing more; runs may finish.
    DRAINING = enum.auto()
    OVER = enum.auto()


class Session:
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

    def _deadlines(self) -> tuple[float, StopDeadlines]:
        """The deadlines that apply, and the time from which they count."""
        if self._at_once_since is not None:
            return self._at_once_since, AT_ONCE_DEADLINES
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
