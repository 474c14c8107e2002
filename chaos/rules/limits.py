"""Limits hold. Each check is certain: it counts only what must have been admitted too early."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from chaos.model import Model, Run
from chaos.work.debounces import SETTLE_SECONDS, debounced
from chaos.work.limits import MOST_AT_ONCE, MOST_PER_WINDOW, WINDOW_SECONDS, limited, rated

from .base import Violation

RESOLUTION_SECONDS = 0.01


def concurrency_limits_hold(model: Model) -> Iterable[Violation]:
    """At most as many bodies run at a time as the limit says. A body counts until a fault may have
    taken its slot."""
    groups: dict[int, list[Run]] = {}
    for run in model.runs:
        if run.function == limited.__name__:
            groups.setdefault(run.event["group"], []).append(run)
    for group, runs in groups.items():
        changes = sorted(
            change for run in runs for change in ((run.at, 1, run.key), (_holds_until(model, run), -1, ""))
        )
        count = 0
        for at, change, key in changes:
            count += change
            if change > 0 and count > MOST_AT_ONCE:
                yield Violation(f"{count} runs of group {group} at once, at most {MOST_AT_ONCE}", at, key)


def _holds_until(model: Model, run: Run) -> float:
    interruption = model.interruption(run, run.until)
    return min(run.until, max(interruption.begin, run.at)) if interruption is not None else run.until


def rate_limits_hold(model: Model) -> Iterable[Violation]:
    """A run is admitted between its claim and its start. If these lie within one window for more
    runs than the limit, the limit was broken. Only the first run of a task counts."""
    first = [runs[0] for runs in model.runs_by_submission.values() if runs[0].function == rated.__name__]
    first.sort(key=lambda run: run.at)
    for i in range(len(first) - MOST_PER_WINDOW):
        window = first[i : i + MOST_PER_WINDOW + 1]
        seconds = max(run.at for run in window) - min(run.claimed_at for run in window)
        if seconds < WINDOW_SECONDS - RESOLUTION_SECONDS:
            text = f"{len(window)} runs within {seconds:.3f} s, at most {MOST_PER_WINDOW} in {WINDOW_SECONDS:g} s"
            yield Violation(text, window[-1].at, window[-1].key)


def debounces_hold(model: Model) -> Iterable[Violation]:
    """Two runs of a group are further apart than the quiet time, and every submission is followed
    by a run of its group."""
    runs = [runs[0] for runs in model.runs_by_submission.values() if runs[0].function == debounced.__name__]
    by_group: dict[int, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.at):
        by_group.setdefault(run.event["group"], []).append(run)
    for group, members in by_group.items():
        for first, second in pairwise(members):
            seconds = second.at - first.claimed_at
            if seconds < SETTLE_SECONDS - RESOLUTION_SECONDS:
                text = f"two runs of group {group} within {seconds:.3f} s, quiet time {SETTLE_SECONDS:g} s"
                yield Violation(text, second.at, second.key)
    for requests in model.scheduling.values():
        for request in requests:
            if request.accepted and request.event["function"] == debounced.__name__:
                group = request.event["args"][0]
                if not any(run.at >= request.event.at for run in by_group.get(group, [])):
                    key = request.event["key"]
                    yield Violation(f"no run of group {group} followed {key}", request.answered_at, key)
