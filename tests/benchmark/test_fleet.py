"""A small fleet under the same measurement as a large one."""

from __future__ import annotations

from bench.fleet import HEAD, measure


def test_a_small_fleet_is_measured_and_keeps_the_bars() -> None:
    figures = measure(6, idle=1.0, stalls=(1.0,), aftermath=3.0, tasks=10, hosts=2)
    assert figures.lost_in_stalls == [0], "nobody is declared dead in a stall that is shorter than the lease"
    # One more for a stage that a waking worker did to find out what its duty is.
    assert figures.scripts_per_task <= 3.5
    assert figures.recovery_seconds is not None
    assert figures.recovery_seconds < 60
    assert figures.idle_cpu < 0.5
    assert HEAD.count("|") // 2 == figures.row().count("|")
