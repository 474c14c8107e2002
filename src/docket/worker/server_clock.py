"""The server's time, reckoned from this machine's clock."""

from __future__ import annotations

import time
from collections.abc import Callable

# Of a server that tells its time in whole milliseconds.
RESOLUTION_MS = 1.0


def _steady_clock() -> Callable[[], float]:
    """Seconds that go on while the machine is suspended,
    where the system can tell; a lease ends then, too."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        return time.monotonic
    return lambda: time.clock_gettime(boottime)


steady_seconds: Callable[[], float] = _steady_clock()


class ServerClock:
    """How far this machine's clock is from the server's. Threads may share it.

    An answer with the server's time was written after its question was sent and before the answer
    arrived. That bounds the offset from both sides, however late the answer is read. The offset
    moves only as far as the bounds force it, so a slow answer changes nothing and a quick one pins
    the offset to within its round trip.
    """

    def __init__(self) -> None:
        self.offset_ms: float = 0.0

    def note(self, server_ms: float, seconds: float) -> None:
        """An answer that has just arrived, `seconds` after its
        question was sent, brought this time of the server."""
        arrived_ms = time.time() * 1000
        least = server_ms - arrived_ms
        most = server_ms + RESOLUTION_MS - (arrived_ms - seconds * 1000)
        self.offset_ms = min(max(self.offset_ms, least), most)

    def now_ms(self) -> float:
        return time.time() * 1000 + self.offset_ms
