"""Cancelled, struck and replaced work does not run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from chaos.faults import LEASE_SECONDS, NOTICE_SECONDS
from chaos.model import Model, Run
from chaos.work import ENDLESS
from chaos.work.changes import strikable

from .base import Violation

RESOLUTION_SECONDS = 0.01
# A process applies a strike within milliseconds; a busy machine gets more time.
STRIKE_SECONDS = 2.0
# A subscription that went silent is noticed within this time, and the strikes are read again.
STRIKE_RECOVERY_SECONDS = 20.0


def cancelled_work_does_not_run(model: Model) -> Iterable[Violation]:
    """After the answer to a cancel nothing of that task is given to a worker, and a run that was
    under way is over soon, unless it has a thread, which cannot be stopped."""
    for key, cancels in model.cancels.items():
        cancel = next((request for request in cancels if request.accepted), None)
        if cancel is None:
            continue
        for run in model.runs_by_key.get(key, []):
            if model.may_be_forgotten(cancel.answered_at, run.until):
                continue
            if run.claimed_wall > cancel.answered_wall + RESOLUTION_SECONDS:
                yield Violation(f"{key} started {run.at - cancel.answered_at:.2f} s after its cancel", run.at, key)
            elif run.until > _cancel_arrives(model, run, cancel.answered_at) + run.stop_seconds:
                yield Violation(f"{key} still ran long after its cancel", cancel.answered_at, key, (run.process,))


def _cancel_arrives(model: Model, run: Run, asked_at: float) -> float:
    """The request arrives at once, or with the next renewal. Faults hold it up."""
    arrives = asked_at + LEASE_SECONDS + NOTICE_SECONDS
    while True:
        held_up = [f.end for f in model.disturbances(run.process, asked_at, arrives)]
        held_up += [i.end for i in model.interruptions_of(run.process) if i.begin < arrives and i.end > asked_at]
        later = max([arrives, *(end + LEASE_SECONDS + NOTICE_SECONDS for end in held_up)])
        if later <= arrives:
            return arrives
        arrives = later


def replaced_work_does_not_run(model: Model) -> Iterable[Violation]:
    """After the answer to a `replace` the task that it replaced is not given to a worker."""
    for key, requests in model.scheduling.items():
        for before, after in pairwise(requests):
            if key in ENDLESS or after.kind != "replace" or not after.accepted:
                continue
            for run in model.runs_by_key.get(key, []):
                is_old = run.token == before.event["token"]
                if is_old and run.claimed_wall > after.answered_wall + RESOLUTION_SECONDS:
                    text = f"{key} ran {run.token} {run.at - after.answered_at:.2f} s after it was replaced"
                    yield Violation(text, run.at, key, (run.process,))


def struck_work_does_not_run(model: Model) -> Iterable[Violation]:
    """While a strike is in force its tasks do not run, on any worker that can be reached."""
    restores = {r.event["value"]: r for r in model.requests if r.kind == "restore"}
    by_number: dict[int, list[Run]] = {}
    for run in model.runs:
        if run.function == strikable.__name__:
            by_number.setdefault(run.event["number"], []).append(run)
    for strike in model.requests:
        if strike.kind != "strike" or not strike.accepted:
            continue
        restore = restores.get(strike.event["value"])
        until = restore.event.at if restore is not None else float("inf")
        for run in by_number.get(strike.event["value"], []):
            applies = strike.answered_at + STRIKE_SECONDS < run.claimed_at and run.at < until
            if applies and not _was_out_of_reach(model, run, strike.answered_at):
                text = f"{run.key} ran on {run.process} {run.at - strike.answered_at:.2f} s after its strike"
                yield Violation(text, run.at, run.key, (run.process,))


def _was_out_of_reach(model: Model, run: Run, since: float) -> bool:
    begin = since - STRIKE_RECOVERY_SECONDS
    if model.may_be_forgotten(since, run.at):
        return True
    interrupted = any(i.begin < run.at and i.end > begin for i in model.interruptions_of(run.process))
    return interrupted or bool(model.disturbances(run.process, begin, run.at))
