"""Perpetual chains and cron tasks neither stop nor fork."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from chaos.model import Model
from chaos.work import ENDLESS
from chaos.work.chains import at_every_second
from chaos.work.plain import plain

from .base import Violation

# A run that was lost twice is a suspect, and waits for a worker that it has for itself.
LONGEST_GAP_SECONDS = 30.0


def chains_do_not_fork(model: Model) -> Iterable[Violation]:
    """The steps of a chain only grow, in the order of its runs. A second run of the same step is
    the business of the rule about duplicates."""
    for key in ENDLESS:
        for before, after in pairwise(model.runs_by_key.get(key, [])):
            if after.step < before.step and not model.may_be_forgotten(before.claimed_at, after.at):
                text = f"{key} went from step {before.step} back to {after.step}"
                yield Violation(text, after.at, key, (before.process, after.process))


def chains_do_not_stop(model: Model) -> Iterable[Violation]:
    """Run follows run, from the first one until the drain cancels the chain."""
    drain = min(model.phase_at("drain"), model.events[-1].at)
    for key in ENDLESS:
        runs = model.runs_by_key.get(key, [])
        if not runs:
            if drain - model.phase_at("load") > LONGEST_GAP_SECONDS:
                yield Violation(f"{key} never ran", drain, key)
            continue
        times = [*sorted(run.at for run in runs if run.at < drain), drain]
        for before, after in pairwise(times):
            gap = after - before - _server_was_away(model, before, after) - _longest_wait(model, before, after)
            if gap > LONGEST_GAP_SECONDS:
                yield Violation(f"{key} did not run for {after - before:.0f} s", after, key)


def _server_was_away(model: Model, begin: float, end: float) -> float:
    """Seconds for which a fault harmed everybody."""
    return sum(
        min(fault.end, end) - max(fault.begin, begin)
        for fault in model.faults
        if not fault.targets and fault.begin < end and fault.end > begin
    )


def _longest_wait(model: Model, begin: float, end: float) -> float:
    """How long ordinary tasks waited that started in that time and were never lost: on a busy
    machine the queue is long, and a chain waits in it like every other task."""
    return max(
        (
            run.at - model.scheduling[run.key][0].event.at
            for run in model.runs
            if run.function == plain.__name__ and begin < run.at <= end
            if len(model.runs_by_key[run.key]) == 1 and run.key in model.scheduling
        ),
        default=0.0,
    )


def a_cron_time_runs_once(model: Model) -> Iterable[Violation]:
    """Each time of a cron task is a whole second, and has come when its run starts. A worker that
    was slow to add the first run added it for that moment. Duplicates are the business of the rule
    about duplicates."""
    for number, run in enumerate(model.runs_by_key.get(at_every_second.__name__, [])):
        if number and run.step % 1000:
            yield Violation(f"{run.key} ran for a time that is not a whole second: {run.step}", run.at, run.key)
        if run.step / 1000 > run.claimed_wall + 0.01:
            yield Violation(f"{run.key} ran {run.step / 1000 - run.claimed_wall:.2f} s early", run.at, run.key)
