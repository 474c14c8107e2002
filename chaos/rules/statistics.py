"""The statistics count what has ended, each ending once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from chaos.histories import Event
from chaos.model import Model
from chaos.work import BY_FUNCTION, ENDLESS
from chaos.work.base import CANCELLED, COMPLETED, FAILED

from .base import Violation

# The ending kinds of each state of a finished record.
KINDS = {
    COMPLETED: ("succeeded",),
    FAILED: ("failed", "timed_out", "buried", "unreadable", "unknown_function"),
    CANCELLED: ("cancelled", "struck", "dropped"),
}


def the_statistics_equal_the_records(model: Model) -> Iterable[Violation]:
    """The counts of a function are the numbers of its finished records by state, and its retries
    the attempts of these records, unless a key had several tasks one after the other. No run counts
    as succeeded whose body did not return."""
    for event in model.of_kind("statistics"):
        counts: dict[str, dict[str, int]] = event["functions"]
        returned = Counter(run.function for run in model.runs if run.how == "ok")
        for function in BY_FUNCTION:
            counted = counts.get(function, {})
            if counted.get("succeeded", 0) > returned[function]:
                text = f"{counted['succeeded']} runs of {function} count as succeeded, {returned[function]} returned"
                yield Violation(text, event.at)
            records = [r for r in model.records.values() if r["function"] == function]
            if not any(record["key"] in ENDLESS or record["generation"] > 1 for record in records):
                yield from _compared(function, counted, records, event.at)


def _compared(function: str, counted: dict[str, int], records: list[Event], at: float) -> Iterable[Violation]:
    expected = Counter[str](record["state"] for record in records)
    for state, kinds in KINDS.items():
        number = sum(counted.get(kind, 0) for kind in kinds)
        if number != expected[state]:
            yield Violation(f"{number} tasks of {function} count as {state}, {expected[state]} have such a record", at)
    retries = sum(record["attempt"] - 1 for record in records)
    if counted.get("retried", 0) != retries:
        yield Violation(f"{counted.get('retried', 0)} retries of {function} are counted, {retries} happened", at)
