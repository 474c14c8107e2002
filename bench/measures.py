"""The measures: their units, and whether higher or lower is better."""

from __future__ import annotations

from dataclasses import dataclass

CONCURRENCIES = (10, 100, 1000)
PROCESSES = (1, 2, 4)
BACKLOGS = (0, 100_000, 1_000_000)
# Only where memory allows.
LARGEST = 10_000_000
# Slots for plain functions that block.
BLOCKING = (10, 100)
# Milliseconds of CPU time, and the digits to show.
COMPUTING = {1: 0, 50: 1}
# Costs per task and the comparisons of processes and backlogs are shown at this concurrency.
USUAL = 100


@dataclass(frozen=True)
class Measure:
    key: str
    title: str
    unit: str
    digits: int = 0
    higher_is_better: bool = False

    def best(self, values: list[float]) -> float:
        return max(values) if self.higher_is_better else min(values)


def _rate(key: str, title: str) -> Measure:
    return Measure(key, title, "/s", higher_is_better=True)


def _costs(concurrency: int) -> list[Measure]:
    return [
        Measure(f"commands_{concurrency}", "Redis commands per task, enqueue to end, those in scripts included", "", 2),
        Measure(f"reads_{concurrency}", "requests the server read per task, enqueue to end", "", 2),
        Measure(f"net_{concurrency}", "bytes over the network per task, enqueue to end", "B"),
        Measure(f"worker_cpu_{concurrency}", "worker CPU per 1,000 tasks", "s", 3),
        Measure(f"server_cpu_{concurrency}", "server CPU per 1,000 tasks, enqueue to end", "s", 3),
        Measure(f"repeats_{concurrency}", "tasks run more than once", ""),
    ]


MEASURES: dict[str, Measure] = {
    measure.key: measure
    for measure in [
        _rate("enqueue_one", "enqueue one by one"),
        _rate("enqueue_bulk", "enqueue in bulk"),
        *[_rate(f"drain_{count}", f"drain, concurrency {count:,}") for count in CONCURRENCIES],
        _rate(f"defaults_{USUAL}", f"drain, concurrency {USUAL}, at its default log level"),
        Measure("efficiency", "50 ms sleeps, concurrency 100: ideal / actual time", "", 2, higher_is_better=True),
        _rate("plain", "plain functions that do nothing, 10 slots"),
        *[
            Measure(f"blocking_{count}", f"plain functions that block for 50 ms, {count} slots: ideal / actual time",
                    "", 2, higher_is_better=True)
            for count in BLOCKING
        ],
        *[
            Measure(f"computing_{ms}", f"{ms} ms of CPU time, a process per core", "/s", digits, higher_is_better=True)
            for ms, digits in COMPUTING.items()
        ],
        *[Measure(f"computing_{ms}_cpu", f"CPU of all processes of the worker per task of {ms} ms", "ms", 2)
          for ms in COMPUTING],
        Measure("latency_p50", "enqueue → body, idle worker, p50", "ms", 2),
        Measure("latency_p99", "the same, p99", "ms", 2),
        Measure("result_p50", "enqueue → result, p50", "ms", 2),
        Measure("result_p99", "the same, p99", "ms", 2),
        Measure("late_p50", "lateness of scheduled tasks, p50", "ms", 1),
        Measure("late_p99", "the same, p99", "ms", 1),
        Measure("bytes", "bytes in Redis per queued task", "B"),
        *[cost for count in CONCURRENCIES for cost in _costs(count)],
        Measure("idle_commands", "Redis commands a second, idle worker", "/s", 1),
        Measure("idle_cpu", "CPU of an idle worker", "% of a core", 1),
        Measure("import_cpu", "CPU of the import", "s", 2),
        *[_rate(f"processes_{count}", f"drain, worker processes: {count}") for count in PROCESSES],
        *[_rate(f"waiting_drain_{size}", f"drain, {size:,} waiting") for size in BACKLOGS],
        *[Measure(f"waiting_enqueue_{size}", f"one enqueue, {size:,} waiting, p50", "ms", 2) for size in BACKLOGS],
        _rate("largest_enqueue", f"enqueue in bulk until {LARGEST:,} wait"),
        _rate("largest_drain", f"drain, {LARGEST:,} waiting"),
        Measure("largest_bytes", f"bytes in Redis per queued task, {LARGEST:,} waiting", "B"),
        Measure("largest_snapshot", f"docket snapshot, {LARGEST:,} waiting", "s", 2),
        Measure("largest_top", f"docket top, {LARGEST:,} waiting", "s", 2),
        *[_rate(f"later_drain_{size}", f"drain, {size:,} scheduled") for size in BACKLOGS],
        *[Measure(f"later_enqueue_{size}", f"one enqueue, {size:,} scheduled, p50", "ms", 2) for size in BACKLOGS],
    ]
}  # fmt: skip
