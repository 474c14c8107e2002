"""All counts of a docket that a live view shows, in one request."""

from __future__ import annotations

from dataclasses import dataclass, field

from .ledger import Ledger
from .statistics import Row, read_fields


@dataclass(frozen=True, slots=True)
class CensusRow:
    """The counts of one moment."""

    server_ms: float
    unfinished: int
    running: int
    scheduled: int
    parked: int
    unknown: int
    held: int
    dead: int
    dropped: int
    limits: int
    oldest_ready_ms: float | None
    workers: int
    stopping: int
    # The sums of all functions, by minute since 1970; none if only counts were asked for.
    minutes: dict[int, Row] = field(default_factory=dict[int, Row])

    @property
    def ready(self) -> int:
        others = self.running + self.scheduled + self.parked + self.unknown + self.held
        return max(self.unfinished - others, 0)


# No minute is later.
_NEVER = 2**53


async def count_tasks(ledger: Ledger) -> CensusRow:
    """Counts in one script call, without the endings of minutes."""
    return await take_census(ledger, _NEVER)


async def take_census(ledger: Ledger, last_minute: int | None = None) -> CensusRow:
    """Counts in one script call. `last_minute` is the last minute of the census before."""
    reply = await ledger.ask("census", (-1 if last_minute is None else last_minute,))
    now, unfinished, running, scheduled, parked, unknown, held, dead, dropped, limits = reply[:10]
    oldest, workers, stopping = reply[10:13]
    oldest_ms = float(oldest.partition(b"-")[0]) if oldest else None
    minutes: dict[int, Row] = {}
    for i in range(13, len(reply), 2):
        total = minutes.setdefault(reply[i], Row())
        for _, row in read_fields(reply[i + 1]):
            total.add(row)
    counts = (unfinished, running, scheduled, parked, unknown, held, dead, dropped, limits)
    return CensusRow(now, *counts, oldest_ms, workers, stopping, minutes)
