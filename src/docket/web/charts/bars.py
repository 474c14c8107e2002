"""Bars over time: one column for each moment, stacked, upwards and downwards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .scales import Tick, coordinate, number, round_up

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
