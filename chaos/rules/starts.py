"""Which runs may begin, and how often."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from chaos.model import Model, Request, Run
from chaos.work.chains import CronWork, tick

from .base import Violation

# Tasks that workers add by themselves.
AUTOMATIC = {tick.__name__, *(function.__name__ for function in CronWork.functions)}


def nothing_runs_that_was_never_enqueued(model: Model) -> Iterable[Violation]:
    """Every run belongs to a request that was not refused, and has its function."""
    requests: dict[str, Request] = {
        request.event["token"]: request for requests in model.scheduling.values() for request in requests
    }
    for run in model.runs:
        if run.function in AUTOMATIC:
            continue
        request = requests.get(run.token)
        if request is None or request.event["function"] != run.function:
            yield Violation(f"{run.key} runs {run.function}({run.token}), which nobody added", run.at, run.key)
        elif request.how in ("refused", "struck"):
            yield Violation(f"{run.key} runs, although its {request.kind} was refused", run.at, run.key)


def every_duplicate_start_is_explained(model: Model) -> Iterable[Violation]:
    """Work starts a second time only if a fault harmed the worker that had it before."""
    for runs in model.runs_by_submission.values():
        for first, second in pairwise(runs):
            if model.interruption(first, second.at) is None:
                yield Violation(
                    f"{first.key} ({first.function}) started on {first.process} and again on {second.process} after "
                    f"{second.at - first.at:.2f} s; no fault harmed {first.process}",
                    second.at,
                    first.key,
                    (first.process, second.process),
                )


def runs_of_one_task_do_not_overlap(model: Model) -> Iterable[Violation]:
    """A run that lost its worker's lease is over soon after the worker can know that. A thread
    cannot be stopped: there, only the writes of the run are over."""
    for runs in model.runs_by_submission.values():
        for first, second in pairwise(runs):
            if first.until > model.noticed_by(first, second.at) + first.stop_seconds:
                yield _overlap(first, second)


def _overlap(first: Run, second: Run) -> Violation:
    seconds = min(first.until, second.until) - second.at
    return Violation(
        f"{first.key} ({first.function}) ran on {first.process} and {second.process} at once, for {seconds:.2f} s",
        second.at,
        first.key,
        (first.process, second.process),
    )
