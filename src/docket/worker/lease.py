"""The worker's lease, as the worker knows it."""

from __future__ import annotations

import math

from .server_clock import steady_seconds

# However long the heartbeat interval is: so often a
# worker renews, and hears of others that are lost.
LONGEST_BEAT = 5.0
# A renewal that comes later than this, in beats, was held up.
LATE = 1.5
# A share of the lease, and seconds.
CUT_OFF_AT = 0.9
SHORTEST_PATIENCE = 0.25


class Lease:
    """The lease of one worker id. The renewal thread changes it; any thread may read it."""

    def __init__(self, worker: str, length_ms: int, beat: float) -> None:
        self.worker = worker
        self.length_ms = length_ms
        self.beat: float = min(beat, length_ms / 3000, LONGEST_BEAT)
        self.late_ms = int(max(length_ms / 3, self.beat * LATE * 1000))
        # For how long the lease has been kept; an outage counts for half a lease at most.
        self.kept_seconds: float = 0.0
        self._renewed_at = steady_seconds()

    def renewed(self, sent_at: float) -> None:
        """The server has answered a renewal. The lease counts from before the renewal was sent."""
        self.kept_seconds += min(sent_at - self._renewed_at, self.length_ms / 2000)
        self._renewed_at = sent_at

    def lost(self) -> None:
        """As lapsed from now on: nothing may start under this lease."""
        self._renewed_at = -math.inf

    @property
    def age(self) -> float:
        """Seconds since the last renewal was sent that the server has answered."""
        return steady_seconds() - self._renewed_at

    @property
    def lapsed(self) -> bool:
        return self.age * 1000 > self.length_ms

    @property
    def left(self) -> float:
        """Seconds until our work would be given up if we
        are cut off: a little before others may start it."""
        return self.length_ms / 1000 * CUT_OFF_AT - self.age

    def patience(self) -> float:
        """How long one request of the renewal thread may take.
        While there is a lease to lose, none outlasts it."""
        usual = min(5.0, max(self.length_ms / 3000, 0.5))
        return max(min(usual, self.left), SHORTEST_PATIENCE) if self.left > 0 else usual


def lease_length_ms(redelivery_timeout_ms: int, heartbeat_ms: int, missed: int) -> int:
    """The lease ends with the redelivery time-out or
    the heartbeat time-out, whichever is sooner."""
    return max(min(redelivery_timeout_ms, heartbeat_ms * missed), 100)
