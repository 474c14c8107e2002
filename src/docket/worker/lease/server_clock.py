"""The server's time, computed from this machine's clock."""

from __future__ import annotations

import math
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


def steady_ms() -> float:
    return steady_seconds() * 1000


def wall_ms() -> float:
    return time.time() * 1000


class ServerClock:
    """The offset between a clock of this machine and the server's. Threads may share it.

    The server reads its clock after the request is sent and before the answer
    arrives. This bounds the offset from both sides, however late the answer is read.
    The offset moves only as far as the bounds require. So a slow answer usually
    changes nothing, and a quick answer fixes the offset to within its round trip.
    """

    def __init__(
        self, local_ms: Callable[[], float] = wall_ms, resolution_ms: float = RESOLUTION_MS, offset_ms: float = 0.0
    ) -> None:
        self._local_ms = local_ms
        self._resolution_ms = resolution_ms
        self.offset_ms: float = offset_ms

    def note(self, server_ms: float, seconds: float) -> None:
        """Takes the server's time from an answer that has
        just arrived, `seconds` after its request was sent."""
        arrived_ms = self._local_ms()
        least = server_ms - arrived_ms
        most = server_ms + self._resolution_ms - (arrived_ms - seconds * 1000)
        self.offset_ms = min(max(self.offset_ms, least), most)

    def now_ms(self) -> float:
        return self._local_ms() + self.offset_ms


def arrival_clock() -> ServerClock:
    """Shows the time that the server's clock will show when a request arrives that is sent now, if
    the request is as quick as the quickest one so far.

    The offset begins too high, so each answer lowers it to its upper bound: the server has read its
    clock when the request arrived."""
    return ServerClock(steady_ms, resolution_ms=0.0, offset_ms=math.inf)
