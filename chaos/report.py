"""The report of a run, as text: counts, recovery
times, and violations with the events around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .histories import Event
from .model import Model
from .recovery import Recovery, recoveries
from .rules import RULES, Rule, Violation
from .work import BY_FUNCTION

# Seconds before and after a violation whose events are shown.
AROUND_SECONDS = 3.0
MOST_EVENTS = 40
MOST_SHOWN = 5
# Kinds of events that say little about one task.
NOISE = {"health", "waiting", "key", "stream", "process", "started"}


@dataclass
class Verdict:
    """The violations of one run, by rule, and what it was made of."""

    model: Model
    violations: Mapping[str, Sequence[Violation]]

    @property
    def count(self) -> int:
        return sum(len(found) for found in self.violations.values())


def judge(model: Model, rules: Iterable[Rule] = RULES) -> Verdict:
    found = {rule.__name__: list(rule(model)) for rule in rules}
    return Verdict(model, found)


def figures(verdict: Verdict, seed: int) -> dict[str, Any]:
    """The content of `summary`, for other programs."""
    model = verdict.model
    return {
        "seed": seed,
        "seconds": round(_seconds(model), 1),
        "requests": Counter(request.kind for request in model.requests),
        "accepted": sum(request.accepted for request in model.requests if request.kind in ("add", "replace")),
        "runs": len(model.runs),
        "restarts": len(model.runs) - len(model.runs_by_submission),
        "ends": Counter(record["state"] for record in model.records.values()),
        "faults": Counter(fault.kind for fault in model.faults),
        "violations": {name: len(found) for name, found in verdict.violations.items() if found},
        "recovery": [
            {"what": found.what, "seconds": [round(seconds, 3) for seconds in found.seconds]}
            for found in recoveries(model)
        ],
    }


def summary(verdict: Verdict, seed: int) -> str:
    """A summary that one reads at a glance."""
    model = verdict.model
    lines = [
        f"seed {seed}: {_seconds(model):.0f} s of load, {len(verdict.violations)} rules, {verdict.count} violations",
        "",
        f"  requests   {_counted(Counter(request.kind for request in model.requests))}",
        f"  answers    {_counted(Counter(request.how for request in model.requests))}",
        f"  runs       {len(model.runs)}, {len(model.runs) - len(model.runs_by_submission)} of them again after a fault",
        f"  work       {_counted(Counter(BY_FUNCTION[run.function].name for run in model.runs))}",
        f"  ends       {_counted(Counter(record['state'] for record in model.records.values()))}",
        f"  processes  {len(model.processes)}",
        f"  faults     {_counted(Counter(fault.kind for fault in model.faults))}",
        "",
        *(f"  {_recovery(found)}" for found in recoveries(model)),
        "",
        *(f"  {'✗' if found else '✓'} {_title(name)}{_times(found)}" for name, found in verdict.violations.items()),
    ]
    return "\n".join(lines)


def details(verdict: Verdict) -> str:
    """The first violations of each rule, each with the events around it."""
    parts: list[str] = []
    for name, found in verdict.violations.items():
        for violation in found[:MOST_SHOWN]:
            parts.append(f"✗ {_title(name)}\n  {violation.text}\n" + "\n".join(_around(verdict.model, violation)))
        if len(found) > MOST_SHOWN:
            parts.append(f"  … and {len(found) - MOST_SHOWN} more violations of this rule")
    return "\n\n".join(parts)


def _around(model: Model, violation: Violation) -> Iterable[str]:
    """The events of its task at any time, and of faults and its processes around that time."""
    begin, end = violation.at - AROUND_SECONDS, violation.at + AROUND_SECONDS
    zero = model.events[0].at
    requests = {r.event["request"] for r in model.requests if violation.key and r.event.get("key") == violation.key}
    runs = {run.event["run"] for run in model.runs if run.key == violation.key}

    def is_shown(event: Event) -> bool:
        if event.kind in NOISE:
            return False
        if violation.key is not None and event.get("key") == violation.key:
            return True
        if event.get("request") in requests or event.get("run") in runs:
            return True
        if not begin <= event.at <= end:
            return False
        is_about_processes = event.process in violation.processes and event.kind in ("log", "stalled", "suicide")
        return is_about_processes or event.kind in ("fault", "healed", "exited", "gap")

    shown = [event for event in model.events if is_shown(event)]
    for event in shown[:MOST_EVENTS]:
        data = " ".join(f"{name}={value}" for name, value in event.data.items())
        yield f"    {event.at - zero:9.3f}  {event.process:6} {event.kind:8} {data}"[:240]
    if len(shown) > MOST_EVENTS:
        yield f"    … and {len(shown) - MOST_EVENTS} more events"


def _seconds(model: Model) -> float:
    return model.phase_at("drain") - model.phase_at("load")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


def _recovery(found: Recovery) -> str:
    return (
        f"{found.what}: {len(found.seconds)} times, median {found.quantile(0.5):.2f} s, "
        f"p95 {found.quantile(0.95):.2f} s, longest {max(found.seconds):.2f} s"
    )


def _title(name: str) -> str:
    return name.replace("_", " ")


def _times(found: Sequence[Violation]) -> str:
    return f": {len(found)}" if found else ""
