"""Charts of bars: columns of functions, a histogram, and a strip."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from docket.model.histograms import BOUNDS, BUCKETS, Histogram

from .scales import Tick, bucket_position, coordinate, number, round_up, seconds

HEIGHT = 100.0
# The share of a column that its bar fills.
_FILLED = 0.78
_LEAST = 1.0


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one colour: `name` is the class of its shape."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Column:
    """The text that the pointer finds in a column."""

    x: float
    words: str


@dataclass(frozen=True, slots=True)
class Bars:
    """The shapes of the bars in a box that is `columns` wide and 100 high. `zero` is the line that
    the bars stand on."""

    columns: int
    zero: float
    shapes: tuple[Shape, ...]
    ticks: tuple[Tick, ...]
    hits: tuple[Column, ...]
    is_empty: bool


def bars(series: Sequence[Series], columns: int, words: Sequence[str] = ()) -> Bars:
    """Bars that stand on the bottom line, the first series below."""
    largest = max(_sums(series, columns), default=0.0)
    top = round_up(largest)
    shapes = _stack(series, columns, HEIGHT, lambda value: -HEIGHT * value / top)
    ticks = (Tick(0, number(top)), Tick(HEIGHT, "0"))
    return Bars(columns, HEIGHT, tuple(shapes), ticks, _hits(columns, words), largest <= 0)


def mirrored(above: Sequence[Series], below: Sequence[Series], columns: int, words: Sequence[str] = ()) -> Bars:
    """Bars upwards and downwards from the middle, on one scale, so that both can be compared. Their
    heights are square roots: a steady trickle stays visible beside a burst."""
    largest = max([*_sums(above, columns), *_sums(below, columns)], default=0.0)
    top, zero = round_up(largest), HEIGHT / 2
    shapes = [*_stack(above, columns, zero, _root(top, -zero)), *_stack(below, columns, zero, _root(top, zero))]
    ticks = [Tick(zero + sign * zero * part**0.5, number(top * part)) for sign, part in _ROOT_TICKS]
    return Bars(columns, zero, tuple(shapes), tuple(ticks), _hits(columns, words), largest <= 0)


_ROOT_TICKS = ((-1, 1.0), (-1, 0.25), (0, 0.0), (1, 0.25), (1, 1.0))
Scale = Callable[[float], float]


def _root(top: float, height: float) -> Scale:
    return lambda value: height * (value / top) ** 0.5


def _hits(columns: int, words: Sequence[str]) -> tuple[Column, ...]:
    """The last words are about the last column."""
    first = columns - len(words)
    return tuple(Column(first + i, text) for i, text in enumerate(words))


def _sums(series: Sequence[Series], columns: int) -> list[float]:
    return [sum(values) for values in zip(*(_padded(one.values, columns) for one in series), strict=True)]


def _padded(values: Sequence[float], columns: int) -> list[float]:
    """The last values are at the right end."""
    last = [max(value, 0.0) for value in values[-columns:]]
    return [0.0] * (columns - len(last)) + last


def _stack(series: Sequence[Series], columns: int, zero: float, scale: Scale) -> list[Shape]:
    """One path for all bars of a series: a chart of an hour has few elements."""
    sums = [0.0] * columns
    shapes: list[Shape] = []
    for one in series:
        parts: list[str] = []
        for x, value in enumerate(_padded(one.values, columns)):
            if value <= 0:
                continue
            base, sums[x] = scale(sums[x]), sums[x] + value
            height = scale(sums[x]) - base
            # What happened once among thousands must be seen, too.
            height = math.copysign(max(abs(height), _LEAST), scale(1.0))
            left, wide = coordinate(x + (1 - _FILLED) / 2), coordinate(_FILLED)
            parts.append(f"M{left} {coordinate(zero + base)}h{wide}v{coordinate(height)}h-{wide}z")
        shapes.append(Shape(one.name, "".join(parts)))
    return shapes


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


@dataclass(frozen=True, slots=True)
class Strip:
    bars: Bars
    hours: tuple[Tick, ...]


def strip(since: datetime, step: timedelta, counts: Mapping[str, Sequence[int]], columns: int) -> Strip:
    """The counts by name, one number per step from `since` on. The names are classes of shapes."""
    series = [Series(name, _whole(values, columns)) for name, values in counts.items()]
    words: list[str] = []
    for i in range(columns):
        begin = since + step * i
        total = sum(one.values[i] for one in series)
        words.append(f"{begin:%H:%M} to {begin + step:%H:%M} UTC: {total:,.0f}")
    return Strip(bars(series, columns, words), _hours(since, step, columns))


def _whole(values: Sequence[int], columns: int) -> list[float]:
    return [float(value) for value in values[:columns]] + [0.0] * max(columns - len(values), 0)


def _hours(since: datetime, step: timedelta, columns: int) -> tuple[Tick, ...]:
    length = step * columns
    first = since.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    found: list[Tick] = []
    while first < since + length:
        if first.hour % 3 == 0:
            found.append(Tick((first - since) / length * 100, f"{first:%H:%M}"))
        first += timedelta(hours=1)
    return tuple(found)
