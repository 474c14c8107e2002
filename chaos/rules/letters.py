"""Tasks that failed for good are kept, once each, and a retry runs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from chaos.model import Model
from chaos.work.base import FAILED

from .base import Violation
from .endings import FORGOTTEN_SECONDS


def every_final_failure_has_one_letter(model: Model) -> Iterable[Violation]:
    """A task that failed for good or was buried has exactly one dead letter of that ending."""
    end = model.events[-1].at if model.events else 0.0
    letters = Counter((event["key"], event["epoch"]) for event in model.of_kind("letter"))
    for (key, epoch), count in letters.items():
        if count > 1:
            yield Violation(f"{key} has {count} letters of run {epoch}", end, key)
    for key, record in model.records.items():
        if record["state"] == FAILED and not letters[key, record["epoch"]]:
            yield Violation(f"{key} failed ({record['error']}) and has no letter of run {record['epoch']}", end, key)


def every_retried_letter_runs(model: Model) -> Iterable[Violation]:
    """A letter that was retried is a task again, which runs."""
    end = model.events[-1].at if model.events else 0.0
    for request in model.requests:
        if request.kind != "retry" or not request.accepted:
            continue
        key = request.event["key"]
        runs = [run for run in model.runs_by_key.get(key, []) if run.event["generation"] > 1]
        if not runs and not model.may_be_forgotten(request.answered_at, request.answered_at + FORGOTTEN_SECONDS):
            yield Violation(f"{key} was retried and did not run", end, key)
