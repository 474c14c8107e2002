"""Outages of a server. The log has one line for the beginning and one for the end."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from docket._aio import Backoff
from docket.errors import TRANSIENT, DocketError

logger: logging.Logger = logging.getLogger("docket.storage")


T = TypeVar("T")

# The longest pause between two attempts of a step.
LONGEST_PAUSE = 1.0
# A connection that died in an outage may be noticed a moment after the outage has ended. A failure
# within this time is logged only if it lasts longer than that.
ECHO_SECONDS = 1.0


class Outages:
    """The services that cannot reach the server now. Threads may share this object.

    The first failure is logged as a warning, further ones at debug level. The outage ends when
    every service that failed has had an answer. The first answer also wakes the services that pause
    before their next attempt. A short failure right after an outage belongs to that outage.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The number of outages that have begun.
        self.count: int = 0
        self._failing: set[Any] = set()
        self._logged: set[type] = set()
        self._began_at = 0.0
        # When the last outage that was logged has ended.
        self._ended_at = float("-inf")
        self._is_echo = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pausing: set[asyncio.Future[None]] = set()
        # Called, from any thread, when a service that failed has had an answer: for threads that
        # pause before their next attempt.
        self.on_answer: set[Callable[[], None]] = set()

    @property
    def is_on(self) -> bool:
        return bool(self._failing)

    def open(self) -> None:
        """Services of this event loop may pause from now on. Earlier failures are forgotten."""
        self._loop = asyncio.get_running_loop()
        with self._lock:
            self._failing.clear()
            self._logged.clear()
            self._ended_at = float("-inf")

    def failed(self, service: Any, activity: str, error: BaseException) -> None:
        """`service` is any object that identifies the
        service, `activity` is its name in the log."""
        with self._lock:
            now = time.monotonic()
            if not self._failing:
                self._is_echo = now - self._ended_at < ECHO_SECONDS
                self._began_at = now
                self.count += 1
            self._failing.add(service)
            is_transient = isinstance(error, TRANSIENT)
            kind = type(self) if is_transient else type(error)
            is_short = self._is_echo and now - self._began_at < ECHO_SECONDS
            is_news = kind not in self._logged and not (is_transient and is_short)
            if is_news:
                self._logged.add(kind)
        if not is_news:
            logger.debug("%s: %s; trying again", activity, error)
        elif is_transient:
            logger.warning("%s: %s; trying again until the server is back", activity, error)
        else:
            logger.error(
                "%s: %s; trying again", activity, error, exc_info=None if isinstance(error, DocketError) else error
            )

    def passed(self, service: Any) -> None:
        """The server has answered this service."""
        if not self._failing or service not in self._failing:
            return
        over = self._leave(service)
        if over is not None:
            logger.info("the server is back after %s", _seconds(over))
        self._wake_all()

    def forget(self, service: Any) -> None:
        """The service has stopped trying."""
        if service in self._failing:
            self._leave(service)

    async def pause(self, seconds: float) -> None:
        """Waits until the time is over, or another service has had an answer."""
        pausing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pausing.add(pausing)
        try:
            await asyncio.wait([pausing], timeout=seconds)
        finally:
            self._pausing.discard(pausing)

    async def until_answered(
        self,
        step: Callable[[], Awaitable[T]],
        activity: str,
        *,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> T:
        """Repeats a step until the server answers it. The step must be safe to repeat. `on_failure`
        is called after each failure, and ends the attempts if it raises an error."""
        service, backoff = object(), Backoff(most=LONGEST_PAUSE)
        try:
            while True:
                try:
                    answer = await step()
                except TRANSIENT as error:
                    self.failed(service, activity, error)
                    on_failure(error)
                    await self.pause(backoff.next_pause())
                else:
                    self.passed(service)
                    return answer
        finally:
            self.forget(service)

    def _leave(self, service: Any) -> float | None:
        """The length of the outage, if this service was
        the last one and the log has its beginning."""
        with self._lock:
            if service not in self._failing:
                return None
            self._failing.discard(service)
            if self._failing:
                return None
            if not self._logged:
                return None
            self._logged.clear()
            self._ended_at = time.monotonic()
            return self._ended_at - self._began_at

    def _wake_all(self) -> None:
        for wake in tuple(self.on_answer):
            wake()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_pauses)

    def _end_pauses(self) -> None:
        for pausing in self._pausing:
            if not pausing.done():
                pausing.set_result(None)


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
