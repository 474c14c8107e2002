"""How runs ended and how long they took, per function and minute by minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from docket.execution.context import DocketContext
from docket.ledger.statistics import OTHERS, Row, Sample
from docket.model.histograms import Histogram
from docket.model.states import EndingKind
from docket.model.times import check_type, duration_ms, from_ms, to_ms
from docket.storage.schema.statistics import HOUR_MINUTES, MINUTE_MS

# Minutes are kept for three hours, hours for 30 days.
MINUTES_KEPT, HOURS_KEPT = timedelta(hours=3), timedelta(days=30)
DEFAULT_LENGTH = timedelta(hours=1)
# The name of the sum of all functions.
ALL = "*"
_HOUR_MS = MINUTE_MS * HOUR_MINUTES
FAILURES = (
    *(EndingKind.FAILED, EndingKind.TIMED_OUT, EndingKind.RETRIED, EndingKind.BURIED),
    *(EndingKind.UNREADABLE, EndingKind.UNKNOWN_FUNCTION),
)


@dataclass(frozen=True, slots=True)
class FunctionStats:
    """The counts of one function, or of several."""

    function: str
    endings: Mapping[EndingKind, int] = field(default_factory=dict[EndingKind, int])
    # From the due time of a task to the claim of the run that ended.
    waiting_time: Histogram = field(default_factory=Histogram)
    # Of all runs whose body began, and of those that succeeded.
    run_time: Histogram = field(default_factory=Histogram)
    succeeded_run_time: Histogram = field(default_factory=Histogram)
    # The sum of all run times.
    total_run_time: timedelta = timedelta(0)

    def count(self, *kinds: EndingKind) -> int:
        """How many runs or tasks ended in one of these ways."""
        return sum(self.endings.get(kind, 0) for kind in kinds)

    @property
    def ended(self) -> int:
        """All that ended."""
        return sum(self.endings.values())

    @property
    def succeeded(self) -> int:
        """Runs whose body returned."""
        return self.count(EndingKind.SUCCEEDED)

    @property
    def failed(self) -> int:
        """Runs that failed and were not retried, those that took too long included."""
        return self.count(EndingKind.FAILED, EndingKind.TIMED_OUT)

    @property
    def timed_out(self) -> int:
        """Runs that failed because they took longer than their `Timeout`."""
        return self.count(EndingKind.TIMED_OUT)

    @property
    def retried(self) -> int:
        """Runs that failed, and the next attempt is scheduled."""
        return self.count(EndingKind.RETRIED)

    @property
    def cancelled(self) -> int:
        """Tasks that were cancelled while they waited or ran."""
        return self.count(EndingKind.CANCELLED)

    @property
    def failures(self) -> int:
        """Everything that went wrong by itself: failed, timed out, retried, buried, unreadable, or
        of a function that no worker knows."""
        return self.count(*FAILURES)


@dataclass(frozen=True, slots=True)
class Period:
    """One minute or hour of the statistics."""

    since: datetime
    until: datetime
    counts: FunctionStats


@dataclass(frozen=True, slots=True)
class Stats:
    """The statistics of a docket from `since` to `until`, in whole minutes or hours."""

    since: datetime
    until: datetime
    resolution: timedelta
    # Those that ended most often come first.
    functions: tuple[FunctionStats, ...]
    total: FunctionStats
    # Only those in which anything ended, the earliest first.
    periods: tuple[Period, ...]
    # Endings of functions that have no counts of their own. If the statistics are about one
    # function, some of these may be its endings.
    others: int = 0

    def of(self, function: str) -> FunctionStats:
        """The counts of one function. They are empty if nothing of it ended."""
        return next((found for found in self.functions if found.function == function), FunctionStats(function))


def failing(stats: Stats) -> list[FunctionStats]:
    """The functions with failures, those with the most failures first."""
    return sorted((one for one in stats.functions if one.failures), key=lambda one: (-one.failures, one.function))


async def read_statistics(
    docket: DocketContext, function: str | None, since: datetime | timedelta | None, until: datetime | None
) -> Stats:
    """The statistics of one function or of all. Raises ValueError if the range is empty."""
    now_ms = to_ms(await docket.ledger.now())
    begin, end = _range(now_ms, since, until)
    by_hours = begin < now_ms - duration_ms(MINUTES_KEPT)
    length = _HOUR_MS if by_hours else MINUTE_MS
    first, last = int(begin // length), int(end // length)
    functions: dict[str, Row] = {}
    periods: dict[int, Row] = {}
    total, others = Row(), Row()
    async for stored in docket.ledger.statistics.rows(first, last, by_hours=by_hours, function=function):
        if stored.function == OTHERS:
            others.add(stored.row)
            if function not in (None, OTHERS):
                continue
        for row in (
            functions.setdefault(stored.function, Row()),
            periods.setdefault(stored.number, Row()),
            total,
        ):
            row.add(stored.row)
    found = [function_stats(name, row) for name, row in functions.items()]
    found.sort(key=lambda one: (-one.ended, one.function))
    name = function if function is not None else ALL
    return Stats(
        from_ms(first * length),
        from_ms((last + 1) * length),
        timedelta(milliseconds=length),
        tuple(found),
        function_stats(name, total),
        tuple(
            Period(from_ms(number * length), from_ms((number + 1) * length), function_stats(name, periods[number]))
            for number in sorted(periods)
        ),
        sum(others.endings.values()),
    )


def _range(now_ms: float, since: datetime | timedelta | None, until: datetime | None) -> tuple[float, float]:
    """Begin and end in ms, inside of what is kept."""
    check_type("since", since, (datetime, timedelta))
    check_type("until", until, (datetime,))
    end = now_ms if until is None else to_ms(until)
    length = since if isinstance(since, timedelta) else DEFAULT_LENGTH
    begin = to_ms(since) if isinstance(since, datetime) else end - duration_ms(length)
    if begin > end:
        raise ValueError(
            f"since={since!r} is after until={until!r}" if until is not None else f"since={since!r} is in the future"
        )
    oldest = now_ms - duration_ms(HOURS_KEPT)
    return min(max(begin, oldest), now_ms), min(max(end, oldest), now_ms)


def function_stats(name: str, row: Row) -> FunctionStats:
    """The counts of a row, or of the sum of several."""
    succeeded = Histogram(row.succeeded)
    run_time = succeeded + Histogram(row.others)
    seconds = timedelta(seconds=row.measures.run_seconds)
    return FunctionStats(name, row.endings, Histogram(row.waits), run_time, succeeded, seconds)


FLOW_LENGTH = timedelta(hours=1)


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
    docket: DocketContext, *, length: timedelta = FLOW_LENGTH, function: str | None = None
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
