"""Paused work does not start, and goes on in order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from chaos.model import Model, Request, Run
from chaos.work.pauses import Paused

from .base import Violation

# Clocks are read with this resolution.
RESOLUTION_SECONDS = 0.01
# The first held tasks are let go within this time.
WINDOW_SECONDS = 1.0
PAUSABLE = {function.__name__ for function in Paused.functions}
# What harmed a worker this long ago may still put tasks back.
RECOVERY_SECONDS = 6.0


@dataclass(frozen=True)
class Stretch:
    """A time in which a pause was in force for certain. Requests whose answer was lost may have
    come at any time."""

    rule: tuple[str, int | None]
    begin: float
    end: float
    begin_wall: float
    end_wall: float

    def is_about(self, run: Run) -> bool:
        function, group = self.rule
        return run.function == function and (group is None or run.event.get("group") == group)


def paused_work_does_not_start(model: Model) -> Iterable[Violation]:
    """Between the answer to a pause and the request to resume it, no task that matches is given to
    a worker and started."""
    for stretch in _stretches(model):
        for run in model.runs:
            # A worker judges arguments after the claim, so the pause may be over by then.
            until = run.claimed_wall if stretch.rule[1] is None else run.event.wall
            inside = stretch.begin_wall + RESOLUTION_SECONDS < run.claimed_wall and until < stretch.end_wall
            if inside and stretch.is_about(run) and not model.may_be_forgotten(stretch.begin, run.at):
                late = run.claimed_wall - stretch.begin_wall
                text = f"{run.key} ({run.function}) started on {run.process}, claimed {late:.3f} s after its pause"
                yield Violation(text, run.at, run.key, (run.process,))


def paused_work_goes_on_in_order(model: Model) -> Iterable[Violation]:
    """Tasks that were added during a pause, one after the other, are let go in that order, unless a
    fault has put some of them back."""
    for stretch in _stretches(model):
        if math.isinf(stretch.end) or _is_disturbed(model, stretch):
            continue
        let_go = _let_go(model, stretch)
        added = [request for request in _added(model, stretch) if request.event["key"] in let_go]
        for first, second in combinations(added, 2):
            key, other = first.event["key"], second.event["key"]
            if first.answered_at < second.event.at and let_go[other] < let_go[key]:
                text = f"{key} was let go after {other}, which was added later, in a pause of {stretch.rule[0]}"
                yield Violation(text, stretch.end, key)
                break


def _stretches(model: Model) -> list[Stretch]:
    found: list[Stretch] = []
    resumes = [r for r in model.requests if r.kind == "resume"]
    for pause in model.requests:
        if pause.kind != "pause" or not pause.accepted:
            continue
        rule = pause.event["function"], pause.event["value"]
        others = [r for r in resumes if (r.event["function"], r.event["value"]) == rule]
        # A resume that was sent before, and not answered before, may have come after the pause.
        if any(r.event.at < pause.answered_at and r.answered_at > pause.event.at for r in others):
            continue
        after = [r for r in others if r.event.at >= pause.answered_at]
        first = min(after, key=lambda r: r.event.at) if after else None
        end, end_wall = (first.event.at, first.event.wall) if first is not None else (math.inf, math.inf)
        found.append(Stretch(rule, pause.answered_at, end, pause.answered_wall, end_wall))
    return found


def _added(model: Model, stretch: Stretch) -> list[Request]:
    """The tasks that were added while the pause was in force, in the order of time."""
    function, group = stretch.rule
    wanted = [
        request
        for requests in model.scheduling.values()
        for request in requests
        if request.accepted
        and request.event["function"] == function in PAUSABLE
        and group in (None, request.event["args"][0])
        and stretch.begin < request.event.at
        and request.answered_at < stretch.end
    ]
    return sorted(wanted, key=lambda request: request.event.at)


def _let_go(model: Model, stretch: Stretch) -> dict[str, int]:
    """The place of each task among the events of the server when it was queued again, right after
    the pause. The first such event of a task is that of its `add`."""
    found: dict[str, int] = {}
    queued: set[str] = set()
    for place, event in enumerate(model.of_kind("state")):
        if event["state"] == "queued":
            if event["key"] in queued and stretch.end < event.at < stretch.end + WINDOW_SECONDS:
                found[event["key"]] = place
            queued.add(event["key"])
    return found


def _is_disturbed(model: Model, stretch: Stretch) -> bool:
    """Whether anything may have put tasks back, or hidden events, while this pause was in force."""
    begin, end = stretch.begin - RECOVERY_SECONDS, stretch.end + WINDOW_SECONDS
    if any(stretch.begin < event.at < end for event in model.of_kind("gap")):
        return True
    return any(
        model.disturbances(name, begin, end)
        or any(i.begin < end and i.end > begin for i in model.interruptions_of(name))
        or begin < process.started_at < end
        or begin < process.exited_at < end
        for name, process in model.processes.items()
        if name.startswith("w")
    )
