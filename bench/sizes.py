"""How much is measured: the full form, the quick one, and one small enough for a test."""

from __future__ import annotations

from dataclasses import dataclass

from bench.measures import BACKLOGS, CONCURRENCIES, LARGEST, PROCESSES


@dataclass(frozen=True)
class Sizes:
    """Every loop ends at its count or after its seconds,
    whichever is sooner, so that slow systems stay affordable."""

    name: str
    rounds: int
    concurrencies: tuple[int, ...]
    drain_tasks: int
    drain_seconds: float
    enqueue_seconds: float
    one_by_one: int
    one_by_one_seconds: float
    sleepers: int
    latencies: int
    latency_seconds: float
    scheduled: int
    scheduled_window: float
    idle_seconds: float
    imports: int
    processes: tuple[int, ...] = ()
    # More than for one process, so that all are at work for most of the time.
    process_tasks: int = 50_000
    backlogs: tuple[int, ...] = ()
    later_backlogs: tuple[int, ...] = ()
    # So many tasks that they need gigabytes; 0 leaves this out.
    largest: int = 0
    backlog_systems: tuple[str, ...] = ("docket", "pydocket")
    # Long enough for anything that works at all.
    start_seconds: float = 120.0
    fill_seconds: float = 900.0
    scheduled_delay: float = 1.0
    scheduled_patience: float = 5.0
    sleep: float = 0.05


FULL = Sizes(
    name="full",
    rounds=3,
    concurrencies=CONCURRENCIES,
    drain_tasks=20_000,
    drain_seconds=3.0,
    enqueue_seconds=3.0,
    one_by_one=3_000,
    one_by_one_seconds=1.5,
    sleepers=5_000,
    latencies=200,
    latency_seconds=2.5,
    scheduled=200,
    scheduled_window=3.0,
    idle_seconds=4.0,
    imports=3,
    processes=PROCESSES,
    backlogs=BACKLOGS,
    later_backlogs=(100_000,),
    largest=LARGEST,
)

QUICK = Sizes(
    name="quick",
    rounds=1,
    concurrencies=(10, 100),
    drain_tasks=10_000,
    drain_seconds=1.2,
    enqueue_seconds=0.8,
    one_by_one=1_000,
    one_by_one_seconds=0.5,
    sleepers=1_000,
    latencies=50,
    latency_seconds=1.0,
    scheduled=50,
    scheduled_window=1.0,
    idle_seconds=2.0,
    imports=1,
    scheduled_delay=0.5,
    scheduled_patience=2.0,
)

TINY = Sizes(
    name="tiny",
    rounds=1,
    concurrencies=(10,),
    drain_tasks=200,
    drain_seconds=5.0,
    enqueue_seconds=5.0,
    one_by_one=20,
    one_by_one_seconds=5.0,
    sleepers=100,
    latencies=5,
    latency_seconds=5.0,
    scheduled=5,
    scheduled_window=0.2,
    idle_seconds=0.5,
    imports=1,
    processes=(1, 2),
    process_tasks=1_000,
    backlogs=(0,),
    later_backlogs=(),
    largest=2_000,
    scheduled_delay=0.3,
)
