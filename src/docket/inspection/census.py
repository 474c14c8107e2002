"""How many tasks and workers a docket has now, and how fast tasks come and go."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields
from datetime import datetime

from docket.execution.context import DocketContext
from docket.ledger.queries import CensusRow
from docket.ledger.statistics import Row
from docket.model.places import PlaceCounts
from docket.model.times import from_ms

from .statistics import FAILURES

# The number of censuses whose rates are kept: five minutes, if one is taken every second.
REMEMBERED = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """Tasks per second, over the time since the census before.

    `ended` counts runs and tasks that ended, `failed` those that went wrong, `started` the runs
    that began. `added` counts the tasks that were added, and also retries and the next runs of
    chains, since those wait again.
    """

    added: float
    started: float
    ended: float
    failed: float
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Census(PlaceCounts):
    """How many tasks there are, by where they are, and how many workers, at one moment."""

    taken: datetime
    # Dead letters, and those that did not fit since the docket exists.
    dead: int
    dropped: int
    # Concurrency limits in use.
    limits: int
    # Since when the oldest ready task has been ready.
    oldest_ready: datetime | None
    workers: int
    stopping: int
    # None in the first census of a taker.
    rates: Rates | None = None

    @property
    def unfinished(self) -> int:
        return self.running + self.queued + self.scheduled

    @property
    def oldest_ready_seconds(self) -> float | None:
        """For how long the oldest ready task has been ready."""
        return max((self.taken - self.oldest_ready).total_seconds(), 0.0) if self.oldest_ready else None


class CensusTaker:
    """Takes one census after the other, each in one request, and knows the rates between them.

    A process needs one per docket, however many people look. `recent` has the last censuses, the
    oldest first.
    """

    def __init__(self, docket: DocketContext) -> None:
        self._docket = docket
        self._before: CensusRow | None = None
        self.recent: deque[Census] = deque(maxlen=REMEMBERED)

    async def take(self) -> Census:
        """The present counts, and the rates since the last census."""
        before = self._before
        row = await self._docket.ledger.queries.census(max(before.minutes) if before else None)
        census = _census(row, _rates(before, row) if before else None)
        self._before = row
        self.recent.append(census)
        return census


async def read_census(docket: DocketContext) -> Census:
    """The present counts, without rates."""
    return _census(await docket.ledger.queries.census(), None)


def _census(row: CensusRow, rates: Rates | None) -> Census:
    return Census(
        taken=from_ms(row.server_ms),
        **{field.name: getattr(row, field.name) for field in fields(PlaceCounts)},
        dead=row.dead,
        dropped=row.dropped,
        limits=row.limits,
        oldest_ready=from_ms(row.oldest_ready_ms) if row.oldest_ready_ms is not None else None,
        workers=row.workers,
        stopping=row.stopping,
        rates=rates,
    )


def _rates(before: CensusRow, now: CensusRow) -> Rates | None:
    """None if no time has passed between the two."""
    seconds = (now.server_ms - before.server_ms) / 1000
    if seconds <= 0:
        return None
    ended = failed = 0
    for minute, row in now.minutes.items():
        seen = before.minutes.get(minute, Row())
        ended += sum(row.endings.values()) - sum(seen.endings.values())
        failed += _failed(row) - _failed(seen)
    added = now.unfinished - before.unfinished + ended
    started = now.running - before.running + ended
    return Rates(
        added=max(added, 0) / seconds,
        started=max(started, 0) / seconds,
        ended=max(ended, 0) / seconds,
        failed=max(failed, 0) / seconds,
        seconds=seconds,
    )


def _failed(row: Row) -> int:
    return sum(row.endings.get(kind, 0) for kind in FAILURES)
