"""The server's time, computed from this machine's clock."""

from __future__ import annotations

import time
from collections.abc import Callable

# The server reports its time in whole milliseconds.
RESOLUTION_MS = 1.0


def _steady_clock() -> Callable[[], float]:
    """A clock in seconds that also counts the time in which the machine is suspended, where the
    system offers one: a lease runs out during that time, too."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        return time.monotonic
    return lambda: time.clock_gettime(boottime)


steady_seconds: Callable[[], float] = _steady_clock()


class ServerClock:
    """The offset between this machine's clock and the server's. Threads may share it.

    The server reads its clock after the request is sent and before the answer
    arrives. This bounds the offset from both sides, however late the answer is read.
    The offset moves only as far as the bounds require. So a slow answer usually
    changes nothing, and a quick answer fixes the offset to within its round trip.
    """

    def __init__(self) -> None:
        self.offset_ms: float = 0.0

    def note(self, server_ms: float, seconds: float) -> None:
        """Takes the server's time from an answer that has
        just arrived, `seconds` after its request was sent."""
        arrived_ms = time.time() * 1000
        least = server_ms - arrived_ms
        most = server_ms + RESOLUTION_MS - (arrived_ms - seconds * 1000)
        self.offset_ms = min(max(self.offset_ms, least), most)

    def now_ms(self) -> float:
        return time.time() * 1000 + self.offset_ms
