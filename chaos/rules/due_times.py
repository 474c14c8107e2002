"""Nothing starts before its time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from chaos.model import Model, Run
from chaos.work.chains import EVERY_SECONDS, chain, tick
from chaos.work.retries import DELAY_SECONDS, retried

from .base import Violation

# Clocks are read with this resolution, and the server rounds to milliseconds.
RESOLUTION_SECONDS = 0.01
FORGOTTEN_SECONDS = 30.0


def nothing_starts_before_its_time(model: Model) -> Iterable[Violation]:
    """Neither before the time that the producer gave, nor before the delay of a retry or a chain is
    over."""
    due = {
        request.event["token"]: request.event["due"]
        for requests in model.scheduling.values()
        for request in requests
        if request.event["due"] is not None
    }
    for run in model.runs:
        if run.token in due and run.attempt == 1:
            yield from _early(run, due[run.token], "it is due")
    for runs in model.runs_by_key.values():
        for before, after in pairwise(runs):
            # A server that has forgotten its last writes repeats what it did.
            if not model.may_be_forgotten(min(before.at, after.at), after.at + FORGOTTEN_SECONDS):
                yield from _after_delay(before, after)


def _after_delay(before: Run, after: Run) -> Iterable[Violation]:
    if before.function == retried.__name__ and after.attempt == before.attempt + 1 and before.end is not None:
        yield from _early(after, before.end.wall + DELAY_SECONDS, "the delay of its retry ends")
    if before.function in (chain.__name__, tick.__name__) and after.step == before.step + 1 and before.how == "ok":
        yield from _early(after, before.event.wall + EVERY_SECONDS, "the next run of its chain is due")


def _early(run: Run, due_wall: float, what: str) -> Iterable[Violation]:
    early = due_wall - run.claimed_wall
    if early > RESOLUTION_SECONDS:
        text = f"{run.key} ({run.function}) started on {run.process} {early:.3f} s before {what}"
        yield Violation(text, run.at, run.key, (run.process,))
