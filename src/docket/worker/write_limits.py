"""When a worker stops trying to write an ending that does not arrive
(docs/design/lease-protocol.md, "Settle")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from docket.storage.pipeline import SLOWEST_BYTES_PER_SECOND

LEASES = 3


class KeptLease(Protocol):
    """`kept_seconds`: for how long the worker has kept its lease. `let_go` gives the lease up."""

    @property
    def kept_seconds(self) -> float: ...

    def let_go(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """Makes a clock for each write that fails."""

    lease_seconds: float
    lease: KeptLease

    def clock(self, size: int) -> StuckClock:
        return StuckClock(self.lease, LEASES * self.lease_seconds + size / SLOWEST_BYTES_PER_SECOND)

    def let_go(self) -> None:
        self.lease.let_go()


class StuckClock:
    """How long one write has failed while the lease was renewed. In an outage, in which renewals
    fail as well, it stands still."""

    def __init__(self, lease: KeptLease, most_seconds: float) -> None:
        self._lease = lease
        self._most_seconds = most_seconds
        self._began_at = lease.kept_seconds

    @property
    def seconds(self) -> float:
        return self._lease.kept_seconds - self._began_at

    @property
    def is_over(self) -> bool:
        return self.seconds > self._most_seconds
