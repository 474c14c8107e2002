"""How a docket filled and emptied over the last hours, minute by minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from docket.ledger.statistics import MINUTE_MS, Sample
from docket.model.times import from_ms, to_ms

from .statistics import FunctionStats, Stats, read_statistics

if TYPE_CHECKING:
    from docket.docket import Docket

DEFAULT_LENGTH = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowPoint:
    """One minute. `added` and the counts of tasks are None if no worker has taken a sample in that
    minute.

    `added` is the number of tasks that were added, retries and next runs of chains included, in a
    minute between two samples.
    """

    since: datetime
    ended: int
    failed: int
    # Seconds; None if nothing ended.
    waiting_p50: float | None
    waiting_p99: float | None
    run_p50: float | None
    run_p99: float | None
    added: float | None = None
    ready: int | None = None
    running: int | None = None
    scheduled: int | None = None


async def read_flow(
    docket: Docket, *, length: timedelta = DEFAULT_LENGTH, function: str | None = None
) -> tuple[FlowPoint, ...]:
    """All minutes of the last `length`, at most three hours, the earliest first. Minutes in which
    nothing ended are there, too. The last one is not over yet. With a function, there are no counts
    of tasks."""
    if not timedelta(minutes=1) <= length <= timedelta(hours=3):
        raise ValueError(f"length={length}: it must be from one minute to three hours")
    stats = await read_statistics(docket, function, length, None)
    first, end = (int(to_ms(at) // MINUTE_MS) for at in (stats.since, stats.until))
    samples = await docket.ledger.statistics.samples(first, end - 1) if function is None else []
    counts = _by_minute(stats)
    added, by_minute = _added(samples, counts), {sample.minute: sample for sample in samples}
    return tuple(
        _point(minute, counts.get(minute), by_minute.get(minute), added.get(minute)) for minute in range(first, end)
    )


def _by_minute(stats: Stats) -> dict[int, FunctionStats]:
    return {int(to_ms(period.since) // MINUTE_MS): period.counts for period in stats.periods}


def _added(samples: Sequence[Sample], counts: Mapping[int, FunctionStats]) -> dict[int, float]:
    """How many tasks were added in one minute, between each sample and the one before."""
    found: dict[int, float] = {}
    for before, after in pairwise(samples):
        minutes = (after.at_ms - before.at_ms) / MINUTE_MS
        if minutes <= 0:
            continue
        ended = sum(counts[minute].ended for minute in range(before.minute, after.minute) if minute in counts)
        ended += after.ended - before.ended
        each = max(after.unfinished - before.unfinished + ended, 0) / minutes
        found |= dict.fromkeys(range(before.minute + 1, after.minute + 1), each)
    return found


def _point(minute: int, counts: FunctionStats | None, sample: Sample | None, added: float | None) -> FlowPoint:
    return FlowPoint(
        since=from_ms(minute * MINUTE_MS),
        ended=counts.ended if counts else 0,
        failed=counts.failures if counts else 0,
        waiting_p50=counts.waiting_time.p50 if counts else None,
        waiting_p99=counts.waiting_time.p99 if counts else None,
        run_p50=counts.run_time.p50 if counts else None,
        run_p99=counts.run_time.p99 if counts else None,
        added=added,
        ready=sample.ready if sample else None,
        running=sample.running if sample else None,
        scheduled=sample.scheduled if sample else None,
    )
