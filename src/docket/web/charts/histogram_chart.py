"""A histogram of times: one bar per bucket, on a logarithmic axis."""

from __future__ import annotations

from dataclasses import dataclass

from docket.model.histograms import BOUNDS, BUCKETS, Histogram

from .scales import Tick, bucket_position, coordinate, seconds

_FEWEST_COLUMNS = 15


@dataclass(frozen=True, slots=True)
class HistogramHit:
    x: int
    words: str


@dataclass(frozen=True, slots=True)
class HistogramChart:
    """Bars in a box that is `columns` wide and 100 high; the places of two percentiles."""

    columns: int
    path: str
    p50: float | None
    p99: float | None
    ticks: tuple[Tick, ...]
    hits: tuple[HistogramHit, ...]

    @property
    def is_empty(self) -> bool:
        return not self.path


def histogram_chart(histogram: Histogram) -> HistogramChart:
    low, high = _columns(histogram)
    columns, most = high - low, max(histogram.counts.values(), default=0)
    parts: list[str] = []
    hits: list[HistogramHit] = []
    for bucket, count in sorted(histogram.counts.items()):
        height = max(count / most * 100, 1.5)
        parts.append(f"M{coordinate(bucket - low + 0.06)} 100h.88v-{coordinate(height)}h-.88z")
        hits.append(HistogramHit(bucket - low, f"{_range(bucket)}: {count:,}"))
    found = [i for i in range(0, len(BOUNDS), 5) if low < i + 1 < high]
    ticks = tuple(Tick((i + 1 - low) / columns * 100, seconds(BOUNDS[i])) for i in found)
    places = [None if value is None else bucket_position(value) - low for value in (histogram.p50, histogram.p99)]
    return HistogramChart(columns, "".join(parts), places[0], places[1], ticks, tuple(hits))


def _columns(histogram: Histogram) -> tuple[int, int]:
    if not histogram.counts:
        return 0, _FEWEST_COLUMNS
    low, high = max(min(histogram.counts) - 2, 0), min(max(histogram.counts) + 3, BUCKETS)
    missing = max(_FEWEST_COLUMNS - (high - low), 0)
    low = max(low - missing // 2, 0)
    return low, min(max(high, low + _FEWEST_COLUMNS), BUCKETS)


def _range(bucket: int) -> str:
    if bucket == 0:
        return f"below {seconds(BOUNDS[0])}"
    if bucket >= len(BOUNDS):
        return f"{seconds(BOUNDS[-1])} or more"
    return f"{seconds(BOUNDS[bucket - 1])} to {seconds(BOUNDS[bucket])}"
