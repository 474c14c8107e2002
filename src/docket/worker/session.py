"""One call of `run_forever()` and its like, as others see it: told to end, and waited for."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable
from dataclasses import dataclass

from docket.attached import AttachedWorkers

from .drain import AT_ONCE, LOOP_ENDS, Drain


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds until the services have stopped, the offer
    is withdrawn, and the worker has left the roster."""

    services: float
    withdraw: float
    all: float


# After the end began; to leave the roster, after the grace period.
USUAL = Limits(services=2.0, withdraw=3.0, all=5.0)
# After the worker was told to end at once.
AT_ONCE_LIMITS = Limits(services=0.6, withdraw=1.0, all=1.8)
# The least for each wait, and for a worker whose server
# did not answer the worker that ended just before.
LEAST_SECONDS, SILENT_SECONDS = 0.4, 0.05
# To leave the roster, for a worker whose tasks have finished.
LEAVE_SECONDS = 2.0


class Phase(enum.Enum):
    """How far a session has come. A worker has this one state, beside the order to stop."""

    SETTING_UP = enum.auto()
    SERVING = enum.auto()
    # No new work is taken; runs may finish.
    DRAINING = enum.auto()
    OVER = enum.auto()


class Session:
    """Ends by itself, because the worker or its docket closes, or with its event loop."""

    def __init__(self, on_abandoned: Callable[[], None], attached: AttachedWorkers) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._phase = Phase.SETTING_UP
        self._stop_requested = asyncio.Event()
        self._on_abandoned = on_abandoned
        self._attached = attached
        self._over = asyncio.Event()
        # None during set-up.
        self._draining: Drain | None = None
        # When the end began.
        self._began: float | None = None
        # The same, if the worker ends at once.
        self._since: float | None = None

    @property
    def is_over(self) -> bool:
        return self._phase is Phase.OVER

    @property
    def is_working(self) -> bool:
        """Whether the services run, or the worker drains."""
        return self._phase in (Phase.SERVING, Phase.DRAINING)

    @property
    def is_stopping(self) -> bool:
        """Whether the worker drains, or was told to stop. Safe to call from any thread."""
        return self._stop_requested.is_set() or self._phase is Phase.DRAINING

    def begin(self, draining: Drain) -> None:
        """Set-up is done: the worker serves."""
        self._phase = Phase.SERVING
        self._draining = draining

    async def wait_for_stop(self) -> None:
        await self._stop_requested.wait()

    def stop(self) -> None:
        """Asks the worker to finish what runs and return.
        Asked again, it hands back what still runs."""
        if self._stop_requested.is_set() and self.is_working:
            self.requeue()
        self._end_set_up()
        self._stop_requested.set()

    def begin_end(self) -> None:
        """The worker stops: the grace period begins."""
        self._phase = Phase.DRAINING
        self._began = time.monotonic()
        if self._draining is not None:
            self._draining.begin()

    def finish(self) -> None:
        """The run has returned."""
        self._leave_loop()
        self._over.set()

    def _leave_loop(self) -> None:
        self._phase = Phase.OVER
        self._draining = None

    async def end(self, *, at_once: bool) -> None:
        """Returns when the session is over: drained within the
        grace period, or with all that runs handed back at once.

        A cancel of the caller makes it hand back at once, and is raised when the session is over.
        """
        if self.is_over:
            return
        if self._loop is not asyncio.get_running_loop():
            self._end_elsewhere()
            return
        self._tell(at_once)
        if self.is_inside():
            return
        interrupted: asyncio.CancelledError | None = None
        while not self._over.is_set():
            try:
                await self._over.wait()
            except asyncio.CancelledError as error:
                interrupted = error
                self._tell(at_once=True)
        if interrupted is not None:
            raise interrupted

    def requeue(self, *, loop_ends: bool = False) -> None:
        """What runs goes back now."""
        if self._since is None:
            self._since = self._attached.end_began()
        if self._draining is not None:
            self._draining.hurry(LOOP_ENDS if loop_ends else AT_ONCE, since=self._since, least=self._least)

    @property
    def _least(self) -> float:
        return SILENT_SECONDS if self._attached.is_silent else LEAST_SECONDS

    def _clock(self) -> tuple[float, Limits]:
        if self._since is not None:
            return self._since, AT_ONCE_LIMITS
        return time.monotonic() if self._began is None else self._began, USUAL

    def services_are_late(self) -> bool:
        """Whether the worker has to go on without waiting for its services."""
        start, limits = self._clock()
        return time.monotonic() > start + limits.services

    def seconds_to_withdraw(self) -> float:
        """Until the worker has to go on without having withdrawn its offer."""
        start, limits = self._clock()
        return max(start + limits.withdraw - time.monotonic(), self._least)

    def seconds_to_leave(self) -> float:
        """Until the worker should be gone."""
        start, limits = self._clock()
        least = self._least
        if self._since is None:
            handed_back_at = self._draining.handed_back_at if self._draining is not None else None
            start, least = (start, LEAVE_SECONDS) if handed_back_at is None else (handed_back_at, LEAST_SECONDS)
        return max(start + limits.all - time.monotonic(), least)

    def _end_set_up(self) -> None:
        """Nothing runs yet, and a server or a dependency that has to open may take long."""
        if self._phase is Phase.SETTING_UP and self._task is not None:
            self._task.cancel()

    def _tell(self, at_once: bool) -> None:
        self._stop_requested.set()
        if at_once:
            self.requeue()
        self._end_set_up()

    def is_inside(self) -> bool:
        """A task body that closes its own worker cannot wait for it."""
        if self.is_over:
            return False
        current = asyncio.current_task()
        bodies = self._draining.bodies if self._draining is not None else ()
        return current is self._task or current in bodies

    def _end_elsewhere(self) -> None:
        """Another event loop closes us. If ours is closed,
        nobody will ever go on with the session."""
        if self._loop.is_closed():
            self._on_abandoned()
            self._leave_loop()
        else:
            self._loop.call_soon_threadsafe(self._tell, True)
