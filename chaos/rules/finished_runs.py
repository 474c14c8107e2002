"""The history of finished runs has every failure, and nothing that did not happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from chaos.histories import Event
from chaos.model import Model
from chaos.work import BY_FUNCTION, ENDLESS

from .base import Violation
from .statistics import KINDS

# So many failures of a function and minute are always there; of the others, one.
FAILURES_AT_ONCE = 20
FAILURE_KINDS = ("failed", "timed_out", "retried", "buried", "unreadable", "unknown_function", "lost")
# A task may end like this again and again.
REPEATED = ("lost", "interrupted")


def the_history_equals_the_records(model: Model) -> Iterable[Violation]:
    """A function has as many failures in its history as its statistics count, at least the first
    20, and never more, and likewise one of the other endings. An ending of a task is there once,
    and as its record says."""
    statistics = model.of_kind("statistics")
    for event in model.of_kind("finished_runs"):
        counts: dict[str, dict[str, int]] = statistics[-1]["functions"] if statistics else {}
        for function in BY_FUNCTION:
            runs = [run for run in event["runs"] if run[0] == function]
            yield from _as_many(function, runs, counts.get(function, {}), event.at)
            records = {key: record for key, record in model.records.items() if record["function"] == function}
            if not any(key in ENDLESS or record["generation"] > 1 for key, record in records.items()):
                yield from _as_recorded(function, runs, records, event.at)


def _as_many(function: str, runs: list[Any], counted: dict[str, int], at: float) -> Iterable[Violation]:
    failures = sum(number for kind, number in counted.items() if kind in FAILURE_KINDS)
    others = sum(counted.values()) - failures
    for name, kept, number, least in (
        ("failures", sum(run[4] for run in runs), failures, min(failures, FAILURES_AT_ONCE)),
        ("other endings", sum(not run[4] for run in runs), others, min(others, 1)),
    ):
        if not least <= kept <= number:
            yield Violation(f"the history has {kept} {name} of {function}, {number} were counted", at)


def _as_recorded(function: str, runs: list[Any], records: dict[str, Event], at: float) -> Iterable[Violation]:
    for (key, ending, attempt), number in Counter(
        (key, ending, attempt) for _, key, ending, attempt, _ in runs
    ).items():
        if number > 1 and ending not in REPEATED:
            yield Violation(f"attempt {attempt} of {key} is {number} times in the history as {ending}", at, key)
        record = records.get(key)
        if record is None or ending in REPEATED:
            continue
        is_last = ending != "retried"
        if attempt > record["attempt"] or (is_last and attempt != record["attempt"]):
            text = f"the history has attempt {attempt} of {key} as {ending}, its record has {record['attempt']}"
            yield Violation(text, at, key)
        elif is_last and ending not in KINDS[record["state"]]:
            yield Violation(
                f"the history has {key} of {function} as {ending}, its record as {record['state']}", at, key
            )
