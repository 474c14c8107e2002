"""Workers live, work, count correctly and leave nothing behind."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterable

from chaos.faults import KILLS, STOPS
from chaos.histories import Event
from chaos.model import Model, Process
from chaos.nemesis.garbage import Garbage, Oversized

from .base import Violation

WORKER, PRODUCER = "w", "p"
IDLE_SECONDS = 15.0
BURIED = re.compile(r"(\d+) buried")
SWEPT = re.compile(r"sweeping: (\d+)")
GARBAGE = {Garbage.name, Oversized.name}


def no_process_exits_that_was_not_killed(model: Model) -> Iterable[Violation]:
    """A worker or a producer ends only by a signal of the nemesis or by a task that kills it."""
    for process in model.processes.values():
        if process.code is None or _expected(model, process):
            continue
        yield Violation(f"{process.name} ended with {process.code}", process.exited_at, processes=(process.name,))
    for event in model.of_kind("does not end"):
        yield Violation(f"{event['process']} does not end after SIGTERM", event.at, processes=(event["process"],))


def _expected(model: Model, process: Process) -> bool:
    kinds = {fault.kind for fault in model.faults if process.name in fault.targets}
    if process.code == -signal.SIGKILL:
        return bool(kinds & {*KILLS, "producer killed"}) or any(e.kind == "suicide" for e in process.events)
    return process.code == 0 and (process.stopped_at is not None or bool(kinds & STOPS))


def no_worker_is_healthy_and_idle_while_work_waits(model: Model) -> Iterable[Violation]:
    """An entry that nobody reads for a while means
    that no worker is healthy and has a free slot."""
    for stream in ("stream", "front"):
        since: float | None = None
        last: str | None = None
        for event in model.of_kind("waiting"):
            entry = event.get(stream)
            if entry is None or entry != last:
                last, since = entry, event.at
            elif since is not None and event.at - since >= IDLE_SECONDS:
                for name in _healthy_and_idle(model, since, event.at):
                    text = f"an entry of the {stream} waited for {event.at - since:.0f} s while {name} was idle"
                    yield Violation(text, event.at, processes=(name,))
                since = event.at


def _healthy_and_idle(model: Model, begin: float, end: float) -> Iterable[str]:
    for process in model.processes.values():
        if process.started_at > begin or process.exited_at < end or not process.name.startswith(WORKER):
            continue
        samples = [e for e in process.events if e.kind == "health" and begin <= e.at <= end]
        well = samples and all(e["problem"] is None and e["free"] > 0 for e in samples)
        if well and samples[0].at - begin < 2 and not model.disturbances(process.name, begin, end):
            yield process.name


def the_metrics_balance(model: Model) -> Iterable[Violation]:
    """The counts of a process fit to what it did, if it lived to the end."""
    for process in model.processes.values():
        totals = next((e["totals"] for e in process.events if e.kind == "metrics"), None)
        if totals is None:
            continue
        checks = (
            _worker_checks(process, totals) if process.name.startswith(WORKER) else _producer_checks(model, process)
        )
        for what, counted, least, most in checks:
            if not least <= counted <= most:
                expected = f"{least:g}" if least == most else f"{least:g} to {most:g}"
                text = f"{process.name} counted {counted:g} {what}, expected {expected}"
                yield Violation(text, process.exited_at, processes=(process.name,))


Check = tuple[str, float, float, float]


def _worker_checks(process: Process, totals: dict[str, float]) -> list[Check]:
    starts = sum(event.kind == "start" for event in process.events)
    started, completed = totals.get("started", 0), totals.get("completed", 0)
    # A task that its worker buries has ended without a run of that worker.
    buried = sum(_buried(event) for event in process.events)
    return [
        ("running", totals.get("running", 0), 0, 0),
        ("completed", completed, started + buried, started + buried),
        # A run that a limit holds back has started, and its body has not.
        ("started", started, starts, math.inf),
    ]


def _buried(event: Event) -> int:
    found = BURIED.search(event["text"]) if event.kind == "log" else None
    return int(found[1]) if found else 0


def _producer_checks(model: Model, process: Process) -> list[Check]:
    requests = [r for r in model.requests if r.event.process == process.name and r.kind in ("add", "replace")]
    totals = next(e["totals"] for e in process.events if e.kind == "metrics")
    least = sum(request.accepted for request in requests)
    most = least + sum(request.may_count and not request.accepted for request in requests)
    return [("scheduled", totals.get("scheduled", 0), least, most)]


def the_backstop_finds_nothing(model: Model) -> Iterable[Violation]:
    """The sweep puts back tasks that no ordinary path reaches. There should be none, except for
    records that docket did not write."""
    for event in model.of_kind("log"):
        found = SWEPT.match(event["text"])
        garbage = sum(fault.kind in GARBAGE and fault.begin < event.at for fault in model.faults)
        if found and int(found[1]) > garbage:
            yield Violation(f"{event.process}: {event['text']}", event.at, processes=(event.process,))
