"""Scales: round numbers for axes, positions on a logarithmic axis, colours of names."""

from __future__ import annotations

import bisect
import math
import zlib
from dataclasses import dataclass

from docket.model.histograms import BOUNDS

HUES = 8
# Names beyond these share their colours more often.
_MOST_NAMES = 1_000


@dataclass(frozen=True, slots=True)
class Tick:
    """A word beside an axis. `at` is its place in percent, from the left or from the top."""

    at: float
    words: str


# Rates are rounded far above this. The power of ten of a smaller number may be 0.
_NOTHING = 1e-12


def round_up(value: float) -> float:
    """The next number that reads well: 1, 2 or 5 times a power of ten."""
    if value <= _NOTHING:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 2, 5) if value <= step * power * 1.0001), 10 * power)


def number(value: float) -> str:
    """A number for an axis: 0.5, 20, 1,500, 20k, 3M."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    if value >= 1e4:
        return f"{value / 1e3:g}k"
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def seconds(value: float) -> str:
    """A duration for an axis: 100 µs, 5 ms, 2 s, 3 min, 4 h, 2 d."""
    if value < 0.00099:
        return f"{value * 1e6:.0f} µs"
    if value < 0.99:
        return f"{value * 1000:g} ms" if value < 0.1 else f"{value * 1000:.0f} ms"
    for limit, unit, name in ((99, 1, "s"), (5940, 60, "min"), (172_000, 3600, "h")):
        if value < limit:
            return f"{value / unit:.3g} {name}"
    return f"{value / 86400:.3g} d"


def bucket_position(value: float) -> float:
    """Where a time in seconds lies among the buckets, as a fraction of buckets from the first."""
    bucket = bisect.bisect_right(BOUNDS, value)
    if bucket == 0:
        return max(value / BOUNDS[0], 0.0)
    if bucket == len(BOUNDS):
        return float(bucket)
    low, high = BOUNDS[bucket - 1], BOUNDS[bucket]
    return bucket + math.log(value / low) / math.log(high / low)


class Hues:
    """Colours of names. A name keeps its colour on every page. Its first choice follows from the
    name alone; if that is taken, it gets the one that the fewest names have."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._names = [0] * HUES

    def of(self, name: str) -> int:
        known = self._known.get(name)
        if known is not None:
            return known
        first = zlib.crc32(name.encode("utf-8", "surrogatepass")) % HUES
        if len(self._known) >= _MOST_NAMES:
            return first
        chosen = min(range(HUES), key=lambda one: (self._names[one], (one - first) % HUES))
        self._known[name] = chosen
        self._names[chosen] += 1
        return chosen


_hues = Hues()


def hue(name: str) -> int:
    """One of eight colours."""
    return _hues.of(name)


def coordinate(value: float) -> str:
    """A short form: two digits after the point are finer than a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
