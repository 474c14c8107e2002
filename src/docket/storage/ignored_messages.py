"""Messages that do not prove that a script sent them (docs/design/proofs.md)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from docket.model.texts import escaped

logger: logging.Logger = logging.getLogger("docket.storage")

LOG_SECONDS = 60.0
ASK_SECONDS = 1.0


class IgnoredMessages:
    """Counts the messages that a process ignores, and logs them once a minute at most."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._since_log = 0
        self._logged_at: float | None = None

    def note(self, kind: str) -> bool:
        """`kind` says what the message was taken for: a
        delivery, an ending, … Returns whether it was logged."""
        self._since_log += 1
        now = time.monotonic()
        if self._logged_at is not None and now - self._logged_at < LOG_SECONDS:
            return False
        logger.warning(
            "docket %s: %d messages that no script has sent were ignored, the last one about %s; somebody else publishes "
            "on docket's channels, or runs another release (docs/security.md)",
            escaped(self._name),
            self._since_log,
            kind,
        )
        self._logged_at, self._since_log = now, 0
        return True


class Inquiry:
    """Asks the server instead of believing a message: at once, but once a second at most. The last
    request is never dropped."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self._asked_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def request(self) -> None:
        if self._timer is not None:
            return
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at >= ASK_SECONDS:
            self._asked_at = now
            self._ask()
        else:
            wait = self._asked_at + ASK_SECONDS - now
            self._timer = asyncio.get_running_loop().call_later(wait, self._later)

    def close(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _later(self) -> None:
        self._timer = None
        self._asked_at = time.monotonic()
        self._ask()
