"""Estimates when a task gets a slot of a limit, from the run times of its function."""

from __future__ import annotations

import heapq
from datetime import timedelta

from docket.ledger.facts import FullLimit
from docket.model.histograms import Histogram

# A waiter further behind, or a limit with more slots, is estimated by its share.
_MOST_STEPS = 10_000


def slot_wait(limit: FullLimit, run_times: Histogram, now_ms: float) -> timedelta | None:
    """How long the task waits for a slot, if all runs take the usual time. None if no run of its
    function has ended lately, or if the place of the task is not known."""
    usual, long = run_times.p50, run_times.p95
    if usual is None or long is None or limit.rank is None or limit.most < 1:
        return None
    if limit.rank > _MOST_STEPS or limit.most > _MOST_STEPS:
        return timedelta(seconds=(limit.rank + 1) * usual / limit.most)
    ages = [max(now_ms - holder.epoch / 1000, 0) / 1000 for holder in limit.holders if holder.epoch]
    # When each slot becomes free. A holder that is not known is taken to be half-way.
    free = [_left(age, usual, long) for age in ages][: limit.most]
    in_use = min(limit.in_use, limit.most)
    free += [usual / 2] * (in_use - len(free)) + [0.0] * (limit.most - max(in_use, len(free)))
    heapq.heapify(free)
    for _ in range(limit.rank):
        heapq.heapreplace(free, free[0] + usual)
    return timedelta(seconds=free[0])


def _left(age: float, usual: float, long: float) -> float:
    """How long a run goes on that has taken `age` so far. One that has taken longer than 19 of 20
    runs may well take as long again."""
    if age < usual:
        return usual - age
    return long - age if age < long else age
