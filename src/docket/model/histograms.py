"""Distributions of times, counted in buckets whose bounds grow by a constant factor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

# Five bounds per power of ten, from 0.1 ms to 10⁶ s, rounded to two digits.
BOUNDS: tuple[float, ...] = (
    *(float(f"{step}e{power}") for power in range(-4, 6) for step in ("1", "1.6", "2.5", "4", "6.3")),
    1e6,
)
BUCKETS = len(BOUNDS) + 1


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many times fell into each bucket. Bucket *i* ends below `BOUNDS[i]` seconds; the last one
    has no end."""

    counts: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def count(self) -> int:
        """How many times were counted."""
        return sum(self.counts.values())

    def quantile(self, share: float) -> float | None:
        """The time in seconds that this share of all times does not exceed, estimated inside its
        bucket. None if nothing was counted. Raises ValueError unless 0 <= share <= 1."""
        if not 0 <= share <= 1:
            raise ValueError(f"quantile({share}): it must be between 0 and 1")
        if not self.counts:
            return None
        left = share * self.count
        bucket = 0
        for bucket in sorted(self.counts):
            if left <= self.counts[bucket]:
                break
            left -= self.counts[bucket]
        return _inside(bucket, left / self.counts[bucket])

    @property
    def p50(self) -> float | None:
        """The median in seconds, or None."""
        return self.quantile(0.5)

    @property
    def p95(self) -> float | None:
        """The time in seconds that 95 of 100 do not exceed, or None."""
        return self.quantile(0.95)

    @property
    def p99(self) -> float | None:
        """The time in seconds that 99 of 100 do not exceed, or None."""
        return self.quantile(0.99)

    def __add__(self, other: Histogram) -> Histogram:
        counts = dict(self.counts)
        for bucket, count in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
        return Histogram(counts)


def _inside(bucket: int, share: float) -> float:
    """The time at this share of the way through a bucket, on the logarithmic scale. The first
    bucket begins at 0, and the last one has no end."""
    if bucket == 0:
        return BOUNDS[0] * min(max(share, 0.0), 1.0)
    if bucket >= len(BOUNDS):
        return BOUNDS[-1]
    low, high = BOUNDS[bucket - 1], BOUNDS[bucket]
    return low * math.pow(high / low, min(max(share, 0.0), 1.0))
