"""Decides when a worker stops retrying a write that never
succeeds (docs/design/lease-protocol.md, "Settle")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from docket.storage.pipeline import SLOWEST_BYTES_PER_SECOND

# A write may fail for this many lease lengths.
LEASES = 3


class KeptLease(Protocol):
    """`kept_seconds` is how long the worker has kept its lease. `give_up` gives the lease up."""

    @property
    def kept_seconds(self) -> float: ...

    def give_up(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WritePatience:
    """Creates a clock for each write that fails."""

    lease_seconds: float
    lease: KeptLease

    def clock(self, size: int) -> StuckClock:
        return StuckClock(self.lease, LEASES * self.lease_seconds + size / SLOWEST_BYTES_PER_SECOND)

    def give_up_lease(self) -> None:
        self.lease.give_up()


class StuckClock:
    """Measures how long one write has failed while the lease was renewed. It stands still during an
    outage, when renewals fail as well."""

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
