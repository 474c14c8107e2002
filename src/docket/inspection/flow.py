"""How a docket filled and emptied over the last hours, minute by minute."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from .statistics import read_statistics

if TYPE_CHECKING:
    from docket.docket import Docket

DEFAULT_LENGTH = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowPoint:
    """One minute. `added` and the counts are None if no worker has written down a sample in that
    minute; the counts are those at its end.

    `added` counts the tasks that were added, retries and next runs of chains included.
    """

    since: datetime
    ended: int
    failed: int
    # Seconds; None if nothing ended.
    waiting_p50: float | None
    waiting_p99: float | None
    run_p50: float | None
    run_p99: float | None
    added: int | None = None
    ready: int | None = None
    running: int | None = None
    scheduled: int | None = None


async def read_flow(
    docket: Docket, *, length: timedelta = DEFAULT_LENGTH, function: str | None = None
) -> tuple[FlowPoint, ...]:
    """All minutes of the last `length`, at most three hours, the earliest first. Minutes in which
    nothing ended are there, too. The last one is not over yet. With a function, the counts of
    waiting tasks are None."""
    if not timedelta(minutes=1) <= length <= timedelta(hours=3):
        raise ValueError(f"length={length}: it must be from one minute to three hours")
    stats = await read_statistics(docket, function, length, None)
    by_minute = {period.since: period.counts for period in stats.periods}
    points: list[FlowPoint] = []
    at = stats.since
    while at < stats.until:
        counts = by_minute.get(at)
        points.append(
            FlowPoint(
                since=at,
                ended=counts.ended if counts else 0,
                failed=counts.failures if counts else 0,
                waiting_p50=counts.waiting_time.p50 if counts else None,
                waiting_p99=counts.waiting_time.p99 if counts else None,
                run_p50=counts.run_time.p50 if counts else None,
                run_p99=counts.run_time.p99 if counts else None,
            )
        )
        at += timedelta(minutes=1)
    return tuple(points)
