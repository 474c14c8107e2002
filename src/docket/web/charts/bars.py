"""Bars over time: one column for each moment, stacked, upwards and downwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .scales import Tick, coordinate, number, round_up

HEIGHT = 100.0
# The share of a column that its bar fills.
_FILLED = 0.78


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
    """What the pointer finds in a column."""

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
    return _chart(series, (), columns, words, HEIGHT)


def mirrored(above: Sequence[Series], below: Sequence[Series], columns: int, words: Sequence[str] = ()) -> Bars:
    """Bars upwards and downwards from the middle, on one scale, so that both can be compared."""
    return _chart(above, below, columns, words, HEIGHT / 2)


def _chart(
    above: Sequence[Series], below: Sequence[Series], columns: int, words: Sequence[str], zero: float
) -> Bars:
    largest = max([*_sums(above, columns), *_sums(below, columns)], default=0.0)
    top = round_up(largest)
    scale = (zero if not below else HEIGHT / 2) / top
    shapes = [*_stack(above, columns, zero, -scale), *_stack(below, columns, zero, scale)]
    ticks = [Tick(zero - top * scale, number(top)), Tick(zero, "0")]
    if below:
        ticks.append(Tick(zero + top * scale, number(top)))
    first = columns - len(words)
    hits = tuple(Column(first + i, text) for i, text in enumerate(words))
    return Bars(columns, zero, tuple(shapes), tuple(ticks), hits, largest <= 0)


def _sums(series: Sequence[Series], columns: int) -> list[float]:
    return [sum(values) for values in zip(*(_padded(one.values, columns) for one in series), strict=True)]


def _padded(values: Sequence[float], columns: int) -> list[float]:
    """The last values are at the right end."""
    last = [max(value, 0.0) for value in values[-columns:]]
    return [0.0] * (columns - len(last)) + last


def _stack(series: Sequence[Series], columns: int, zero: float, scale: float) -> list[Shape]:
    """One path for all bars of a series: a chart of an hour has few elements."""
    base = [zero] * columns
    shapes: list[Shape] = []
    for one in series:
        parts: list[str] = []
        for x, value in enumerate(_padded(one.values, columns)):
            if value <= 0:
                continue
            # What happened once among thousands must be seen, too.
            height = value * scale if abs(value * scale) >= 1 else (1.0 if scale > 0 else -1.0)
            left, wide = coordinate(x + (1 - _FILLED) / 2), coordinate(_FILLED)
            parts.append(f"M{left} {coordinate(base[x])}h{wide}v{coordinate(height)}h-{wide}z")
            base[x] += height
        shapes.append(Shape(one.name, "".join(parts)))
    return shapes
