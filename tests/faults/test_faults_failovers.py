"""The small form of `python -m bench.failovers`: worker processes under load while their primary
changes."""

from __future__ import annotations

from bench.failovers import Figures, fail_over, migrate

RATE = 40.0


def check(figures: Figures | None, faults: int) -> None:
    assert figures is not None
    assert figures.exited == []
    assert figures.lost == []
    assert figures.acknowledged > 0
    # One for each of the three workers.
    assert len(figures.recoveries) == 3 * faults


async def test_nothing_confirmed_by_a_replica_is_lost_when_the_primary_is_killed_or_silent() -> None:
    check(await fail_over(2, rate=RATE), 2)


async def test_nothing_confirmed_by_a_replica_is_lost_when_the_slot_migrates() -> None:
    check(await migrate(2, in_one_step=False, rate=RATE), 2)
