"""Runs in threads, which cannot be stopped, and in children, which can."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from chaos.faults import NOTICE_SECONDS
from chaos.histories import Event
from chaos.model import CHILD_SECONDS, Model, Process, Run
from chaos.work.base import COMPLETED
from chaos.work.harmful import block_loop

from .base import Violation

# A worker reads the end of a body and its clock at almost the same time.
RESOLUTION_SECONDS = 0.1
# The event loop has noticed what happened this long ago, if it ran meanwhile.
COUNTED_SECONDS = 1.0


def no_run_that_was_given_up_is_recorded_as_done(model: Model) -> Iterable[Violation]:
    """A completed record never names a run whose thread was abandoned, whose child was killed, or
    whose body lasted longer than its `Timeout`."""
    for key, record in model.records.items():
        if record["state"] != COMPLETED:
            continue
        for run in model.runs_by_key.get(key, []):
            why = _given_up(run) if run.epoch == record["epoch"] else None
            if why is not None:
                text = f"{key} ({run.function}) is completed by run {run.epoch}, {why}"
                yield Violation(text, run.at, key, (run.process,))


def _given_up(run: Run) -> str | None:
    if run.was_given_up:
        return "which had been given up"
    if run.runtime == "child" and run.end is None:
        return "whose child did not reach its end"
    seconds = run.until - run.at
    if run.limit is not None and seconds > run.limit + RESOLUTION_SECONDS:
        return f"which took {seconds:.2f} s of {run.limit:g} s"
    return None


def no_child_outlives_its_worker(model: Model) -> Iterable[Violation]:
    """Two seconds after the end of a worker, all its children are gone."""
    for child in model.children.values():
        worker = model.processes.get(child.worker)
        if worker is not None and child.alive_at - worker.exited_at > CHILD_SECONDS:
            text = f"child {child.pid} outlived {worker.name} by {child.alive_at - worker.exited_at:.2f} s"
            yield Violation(text, child.alive_at, processes=(worker.name,))


def a_time_out_stops_the_child(model: Model) -> Iterable[Violation]:
    """A body in a child is over soon after its time-out, unless its worker was harmed."""
    for run in model.runs:
        if run.runtime != "child" or run.limit is None:
            continue
        by = run.at + run.limit + CHILD_SECONDS + NOTICE_SECONDS
        until = min(run.until, model.events[-1].at)
        if until > by and not _was_harmed(model, run, by):
            text = f"{run.key} ({run.function}) went on for {until - run.at:.2f} s, its Timeout is {run.limit:g} s"
            yield Violation(text, by, run.key, (run.process,))


def _was_harmed(model: Model, run: Run, until: float) -> bool:
    """Whether the worker could not look at its clock all the time."""
    if any(i.begin < until and i.end > run.at for i in model.interruptions_of(run.process)):
        return True
    blocked = [other for other in model.runs if other.process == run.process and other.function == block_loop.__name__]
    return any(other.at < until and other.until > run.at for other in blocked)


def abandoned_threads_are_counted(model: Model) -> Iterable[Violation]:
    """The metric of a worker counts each thread that goes on after the time-out of its run, and
    nothing else."""
    threads: dict[str, list[Run]] = {}
    for run in model.runs:
        if run.runtime == "thread":
            threads.setdefault(run.process, []).append(run)
    for process in model.processes.values():
        yield from _miscounted(process, threads.get(process.name, []))


def _miscounted(process: Process, runs: list[Run]) -> Iterable[Violation]:
    samples = [event for event in process.events if event.kind == "health"]
    for before, after in pairwise(samples):
        if after.at - before.at > COUNTED_SECONDS:
            # The event loop was held up, so it may not have seen everything.
            continue
        least, most = _abandoned(runs, before, after)
        counted = before["abandoned"], after["abandoned"]
        if counted[1] < least or min(counted) > most:
            text = f"{process.name} counted {counted[1]:g} abandoned threads, of {least} to {most}"
            yield Violation(text, after.at, processes=(process.name,))


def _abandoned(runs: list[Run], before: Event, after: Event) -> tuple[int, int]:
    """How many threads must be counted at both times, and how many may be."""
    certain = [
        run
        for run in runs
        if run.at + (math.inf if run.limit is None else run.limit) + COUNTED_SECONDS < after.at
        and run.until > after.at + COUNTED_SECONDS
    ]
    possible = [run for run in runs if run.at <= after.at and run.until >= before.at - COUNTED_SECONDS]
    return len(certain), len(possible)
