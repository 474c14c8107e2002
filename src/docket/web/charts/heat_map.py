"""A heat map: how many times fell into each bucket of a histogram, minute by minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from docket.model.histograms import BOUNDS, BUCKETS, Histogram

from .scales import Tick, bucket_position, coordinate, seconds

LEVELS = 5
# Fewer rows would look like a flag.
_FEWEST_ROWS = 10


@dataclass(frozen=True, slots=True)
class Cells:
    """All cells of one shade. Level 1 is the palest."""

    level: int
    path: str


@dataclass(frozen=True, slots=True)
class HeatColumn:
    x: int
    words: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Cells in a box of `columns` times `rows`, the longest times above, and the lines of two
    percentiles."""

    columns: int
    rows: int
    cells: tuple[Cells, ...]
    p50: str
    p99: str
    ticks: tuple[Tick, ...]
    hits: tuple[HeatColumn, ...]
    total: Histogram

    @property
    def is_empty(self) -> bool:
        return not self.cells


@dataclass(frozen=True, slots=True)
class TimedHistogram:
    """The histogram of one column, and when it began."""

    column: int
    since: datetime
    histogram: Histogram


def heat_map(moments: Sequence[TimedHistogram], columns: int) -> HeatMap:
    """The heat map of these columns. A column without a moment is empty."""
    found = [one for one in moments if one.histogram.counts and 0 <= one.column < columns]
    total = Histogram()
    for one in found:
        total += one.histogram
    low, high = _rows(total)
    rows = high - low
    return HeatMap(
        columns,
        rows,
        _cells(found, low, high),
        _line(found, 0.5, low, high),
        _line(found, 0.99, low, high),
        _ticks(low, high),
        tuple(HeatColumn(one.column, _words(one)) for one in found),
        total,
    )


def _rows(total: Histogram) -> tuple[int, int]:
    """The buckets that are shown: from the first, to the one after the last."""
    if not total.counts:
        return 0, _FEWEST_ROWS
    low, high = max(min(total.counts) - 1, 0), min(max(total.counts) + 2, BUCKETS)
    missing = max(_FEWEST_ROWS - (high - low), 0)
    low = max(low - missing // 2, 0)
    return low, min(max(high, low + _FEWEST_ROWS), BUCKETS)


def _cells(found: Sequence[TimedHistogram], low: int, high: int) -> tuple[Cells, ...]:
    most = max((count for one in found for count in one.histogram.counts.values()), default=0)
    paths: dict[int, list[str]] = {}
    for one in found:
        for bucket, count in sorted(one.histogram.counts.items()):
            # The square root keeps a few slow runs visible beside thousands of quick ones.
            level = max(-int(-((count / most) ** 0.5) * LEVELS // 1), 1)
            paths.setdefault(level, []).append(f"M{one.column} {high - 1 - bucket}h1v1h-1z")
    return tuple(Cells(level, "".join(paths[level])) for level in sorted(paths))


def _line(found: Sequence[TimedHistogram], share: float, low: int, high: int) -> str:
    """A line through the middle of the columns. It is broken where a column is empty."""
    parts: list[str] = []
    before = None
    for one in found:
        value = one.histogram.quantile(share)
        assert value is not None
        y = min(max(high - bucket_position(value), 0.0), float(high - low))
        step = "L" if before == one.column - 1 else "M"
        # A single point needs some length to be visible.
        parts.append(f"{step}{coordinate(one.column + 0.5)} {coordinate(y)}" + ("h.01" if step == "M" else ""))
        before = one.column
    return "".join(parts)


def _ticks(low: int, high: int) -> tuple[Tick, ...]:
    """The powers of ten among the bounds."""
    rows = high - low
    # BOUNDS[i] is the upper end of bucket i, five bounds per power of ten.
    found = [i for i in range(0, len(BOUNDS), 5) if low <= i + 1 <= high]
    return tuple(Tick((high - (i + 1)) / rows * 100, seconds(BOUNDS[i])) for i in found)


def _words(one: TimedHistogram) -> str:
    histogram = one.histogram
    p50, p99 = histogram.p50 or 0.0, histogram.p99 or 0.0
    return f"{one.since:%H:%M}: {histogram.count:,}, half within {seconds(p50)}, 99 % within {seconds(p99)}"
