"""The lease of a worker id, and the server's time, in which leases are measured, computed from this
machine's clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

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


# A worker renews at least this often, in seconds, however long the heartbeat interval is: the
# answers also report lost workers.
LONGEST_INTERVAL = 5.0
# A renewal counts as late after this many intervals.
LATE = 1.5
# A worker that cannot renew gives up its runs after this share of the lease.
CUT_OFF_AT = 0.9
# The shortest time-out for a request of the renewal thread, in seconds.
SHORTEST_PATIENCE = 0.25


class LeaseView(Protocol):
    """The lease as the other parts of a worker see it. The registration has it, because the worker
    may get a new id with a new lease."""

    @property
    def id(self) -> str: ...

    @property
    def lapsed(self) -> bool: ...

    def renew_now(self) -> None: ...

    def age(self, server_ms: float) -> float: ...


class Lease:
    """The lease of one worker id. The renewal thread changes it; any thread may read it."""

    def __init__(self, worker: str, length_ms: int, interval: float) -> None:
        self.worker = worker
        self.length_ms = length_ms
        self.interval: float = min(interval, length_ms / 3000, LONGEST_INTERVAL)
        self.late_ms: int = int(max(length_ms / 3, self.interval * LATE * 1000))
        # How long the worker has kept the lease. An outage counts for at most half a lease.
        self.kept_seconds: float = 0.0
        self._renewed_at = steady_seconds()
        # When the lease ends, on the steady clock. Every run asks for it before it begins.
        self._ends_at = self._renewed_at + length_ms / 1000

    def renewed(self, sent_at: float) -> None:
        """The server has answered a renewal. The lease counts
        from the time at which the renewal was sent."""
        self.kept_seconds += min(sent_at - self._renewed_at, self.length_ms / 2000)
        self._renewed_at = sent_at
        self._ends_at = sent_at + self.length_ms / 1000

    def lost(self) -> None:
        """The lease counts as lapsed from now on: nothing may start under it."""
        self._renewed_at = self._ends_at = -math.inf

    @property
    def age(self) -> float:
        """Seconds since the last answered renewal was sent."""
        return steady_seconds() - self._renewed_at

    @property
    def lapsed(self) -> bool:
        return steady_seconds() > self._ends_at

    @property
    def left(self) -> float:
        """Seconds until a worker that is cut off gives up its runs, which is shortly before other
        workers may start those tasks."""
        return self.length_ms / 1000 * CUT_OFF_AT - self.age

    def patience(self) -> float:
        """The time-out for a request of the renewal thread. While the worker still has its lease,
        no request outlasts the lease."""
        usual = min(5.0, max(self.length_ms / 3000, 0.5))
        return max(min(usual, self.left), SHORTEST_PATIENCE) if self.left > 0 else usual


def lease_length_ms(redelivery_timeout_ms: int, heartbeat_ms: int, missed: int) -> int:
    """The shorter of the redelivery time-out and the heartbeat time-out."""
    return max(min(redelivery_timeout_ms, heartbeat_ms * missed), 100)
