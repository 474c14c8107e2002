"""When a task gets a slot of a limit, if runs take as long as usual."""

from __future__ import annotations

from bisect import bisect_right
from datetime import timedelta

import pytest

from docket.inspection.why import slot_wait
from docket.ledger.facts import FullLimit, HolderRow
from docket.model.histograms import BOUNDS, Histogram

NOW_MS = 1_800_000_000_000.0


def limit(*ages: float, most: int = 2, rank: int | None = 0, in_use: int | None = None) -> FullLimit:
    """Its holders have run for these times, in seconds."""
    holders = tuple(HolderRow("k", "w~1", int((NOW_MS - age * 1000) * 1000)) for age in ages)
    return FullLimit("limit", most, len(ages) if in_use is None else in_use, 5, rank, holders)


def runs(seconds: float) -> Histogram:
    return Histogram({bisect_right(BOUNDS, seconds): 100})


USUAL = runs(10).p50 or 0.0
LONG = runs(10).p95 or 0.0


def seconds(found: timedelta | None) -> float:
    assert found is not None
    return found.total_seconds()


def test_the_first_waiter_gets_the_slot_that_is_free_first() -> None:
    assert seconds(slot_wait(limit(2, 5), runs(10), NOW_MS)) == pytest.approx(USUAL - 5)


def test_those_before_it_take_slots_first() -> None:
    assert seconds(slot_wait(limit(2, 5, rank=1), runs(10), NOW_MS)) == pytest.approx(USUAL - 2)
    assert seconds(slot_wait(limit(2, 5, rank=2), runs(10), NOW_MS)) == pytest.approx(2 * USUAL - 5)


def test_a_run_that_takes_longer_than_usual() -> None:
    age = (USUAL + LONG) / 2
    assert seconds(slot_wait(limit(age, most=1), runs(10), NOW_MS)) == pytest.approx(LONG - age)
    assert seconds(slot_wait(limit(60, most=1), runs(10), NOW_MS)) == pytest.approx(60)


def test_slots_whose_holders_are_not_known_and_free_ones() -> None:
    assert seconds(slot_wait(limit(in_use=2), runs(10), NOW_MS)) == pytest.approx(USUAL / 2)
    assert seconds(slot_wait(limit(1, in_use=1), runs(10), NOW_MS)) == 0


def test_a_long_line_is_estimated_by_its_share() -> None:
    assert seconds(slot_wait(limit(1, 1, rank=1_000_000), runs(10), NOW_MS)) == pytest.approx(500_000 * USUAL, rel=0.01)


@pytest.mark.parametrize("unknown", [limit(1, rank=None), limit(1, most=0)])
def test_what_is_not_known_is_not_guessed(unknown: FullLimit) -> None:
    assert slot_wait(unknown, runs(10), NOW_MS) is None
    assert slot_wait(limit(1), Histogram(), NOW_MS) is None
