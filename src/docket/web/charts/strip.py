"""The load of the next hours as a strip: stacked bars, and the hours as ticks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from .bars import Bars, Series, bars
from .scales import Tick


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
