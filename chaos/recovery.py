"""How soon work goes on after a fault."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .faults import KILLS
from .model import Model

OUTAGES = (
    "fail-over",
    "slot migration",
    "server killed",
    "server paused",
    "server read-only",
    "out of memory",
    "connections killed",
)


@dataclass(frozen=True)
class Recovery:
    """The times, in seconds, that it took after the faults of one kind."""

    what: str
    seconds: Sequence[float]

    def quantile(self, part: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def recoveries(model: Model) -> list[Recovery]:
    """After an outage of the server: until the next task starts. After the death of a worker: until
    each task that it ran starts again."""
    starts = [run.at for run in model.runs]
    found: list[Recovery] = []
    for kind in OUTAGES:
        ends = [fault.end for fault in model.faults if fault.kind == kind]
        after = [at - end for end in ends if (at := _first_after(starts, end)) and not _is_harmed(model, end, at)]
        if after:
            found.append(Recovery(f"first start after: {kind}", after))
    lost = _restarts(model)
    return [*found, Recovery("restart of a killed worker's task", lost)] if lost else found


def _first_after(times: Sequence[float], at: float) -> float | None:
    number = bisect_right(times, at)
    return times[number] if number < len(times) else None


def _is_harmed(model: Model, begin: float, end: float) -> bool:
    """Whether there was no worker that could go on at once: the next fault came before, or all
    workers were about to start."""
    for process in model.processes.values():
        is_ready = any(event.kind == "ready" and event.at < begin for event in process.events)
        if process.name.startswith("w") and is_ready and process.exited_at > end:
            others = [fault for fault in model.disturbances(process.name, begin, end) if fault.end != begin]
            if not others and not any(i.begin < end and i.end > begin for i in model.interruptions_of(process.name)):
                return False
    return True


def _restarts(model: Model) -> list[float]:
    killed = {target: fault.begin for fault in model.faults if fault.kind in KILLS for target in fault.targets}
    seconds: list[float] = []
    for runs in model.runs_by_submission.values():
        for first, second in pairwise(runs):
            at = killed.get(first.process)
            if at is not None and first.end is None:
                seconds.append(second.at - at)
    return seconds
