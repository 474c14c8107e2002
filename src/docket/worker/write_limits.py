"""When a worker stops trying to write an ending that does not arrive (docs/design/lease-protocol.md, "Settle")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from docket.storage.wire import SLOWEST_BYTES_PER_SECOND

LEASES = 3


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """`kept_seconds`: for how long the worker has kept its lease. `let_go` gives the lease up."""

    lease_seconds: float
    kept_seconds: Callable[[], float]
    let_go: Callable[[], None]

    def clock(self, size: int) -> StuckClock:
        return StuckClock(self.kept_seconds, LEASES * self.lease_seconds + size / SLOWEST_BYTES_PER_SECOND)


class StuckClock:
    """How long one write has failed while the lease was renewed. In an outage, in which renewals fail as well, it stands still."""

    def __init__(self, kept_seconds: Callable[[], float], most_seconds: float) -> None:
        self._kept_seconds = kept_seconds
        self._most_seconds = most_seconds
        self._began_at = kept_seconds()

    @property
    def seconds(self) -> float:
        return self._kept_seconds() - self._began_at

    @property
    def is_over(self) -> bool:
        return self.seconds > self._most_seconds
