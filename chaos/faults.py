"""Faults as the rules see them: when they were, whom they harmed, and what they explain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .histories import Event
from .settings import GRACE_SECONDS, LEASE_SECONDS

# What is shorter than this cannot make a worker lose its lease: it renews three times as often.
LEAST_SECONDS = LEASE_SECONDS / 4
# A worker that wakes cancels its stale runs within 250 ms. A busy machine gets more time.
NOTICE_SECONDS = 3.0
# The longest time from a request to stop until the process is gone, beyond the grace period.
EXIT_SECONDS = 5.0

# While the server is away no worker is declared dead, and for this long afterwards. Outages that
# follow each other extend this time, for three leases in all.
SHORTEST_OUTAGE = LEASE_SECONDS / 3
GRACE_AFTER_OUTAGE = LEASE_SECONDS * 2 / 3
LONGEST_GRACE = LEASE_SECONDS * 3
OUTAGES = {"server killed", "server paused", "server read-only", "out of memory"}
# By how much a time of the nemesis and one of the server may differ.
RESOLUTION_SECONDS = 0.5

# A replica lags behind its primary by less than this.
ROLLBACK_SECONDS = 3.0
# Faults of the network of one process in which its renewals may not arrive.
CUTS = {"network gone", "network slow", "one direction lags", "network throttled"}
KILLS = {"worker killed"}
STOPS = {"worker stopped"}
PAUSES = {"worker paused"}
# Faults after which the server may lack its last writes: it gives out the work of runs that it does
# not know any more, and those runs go on, without effect.
ROLLBACKS = {"fail-over"}
MAIN = "main"


@dataclass(frozen=True)
class Fault:
    """A fault that the nemesis has written down."""

    kind: str
    targets: tuple[str, ...]
    begin: float
    end: float

    def harms(self, process: str) -> bool:
        """Whether it harms this process: a target is a process, or a place with its processes. A
        fault without targets harms everybody."""
        place = process.rpartition("-")[0]
        return not self.targets or process in self.targets or (bool(place) and place in self.targets)


@dataclass(frozen=True)
class Interruption:
    """A stretch in which a worker may have lost its runs to others."""

    kind: str
    begin: float
    end: float
    # After this time its stale runs must be over.
    noticed_by: float

    def explains(self, claimed_at: float, restarted_at: float) -> bool:
        """Whether it can be the reason that work which was claimed and restarted at these times was
        restarted. The lease may end a while after the interruption."""
        return self.begin <= restarted_at and self.end + LEASE_SECONDS >= claimed_at


def read_faults(events: Iterable[Event]) -> list[Fault]:
    begun: dict[int, Event] = {}
    faults: list[Fault] = []
    for event in events:
        if event.kind == "fault":
            begun[event["number"]] = event
        elif event.kind == "healed":
            begin = begun.pop(event["number"])
            faults.append(Fault(begin["fault"], tuple(begin["targets"]), begin.at, event.at))
    faults += [Fault(event["fault"], tuple(event["targets"]), event.at, math.inf) for event in begun.values()]
    return sorted(faults, key=lambda fault: fault.begin)


def interruptions(process: str, faults: Sequence[Fault], events: Iterable[Event]) -> list[Interruption]:
    """All interruptions of one process, by faults, by its own tasks, and by a busy machine."""
    harmful = [fault for fault in faults if fault.harms(process)]
    found = [made for fault in harmful if (made := _by_fault(fault)) is not None]
    found += _by_outages(harmful)
    for event in events:
        if event.kind == "suicide" and event.process == process:
            found.append(Interruption("suicide", event.at, math.inf, event.at))
        elif event.kind == "stalled" and event.process in (process, MAIN) and event["seconds"] >= LEAST_SECONDS:
            begin = event.at - event["seconds"]
            found.append(Interruption("stall", begin, event.at, event.at + NOTICE_SECONDS))
        elif event.kind == "stopped" and event["process"] == process:
            by = event.at + GRACE_SECONDS + EXIT_SECONDS
            found.append(Interruption("stopped", event.at, math.inf, by))
    return sorted(found, key=lambda interruption: interruption.begin)


def _by_outages(faults: Sequence[Fault]) -> Iterable[Interruption]:
    """Outages that follow each other for longer than the grace: the workers that renew first may
    declare the others dead."""
    since = until = -math.inf
    outages = [f for f in faults if f.kind in OUTAGES | CUTS and f.end - f.begin > SHORTEST_OUTAGE]
    for fault in sorted(outages, key=lambda outage: outage.end):
        if fault.begin > until + GRACE_AFTER_OUTAGE + RESOLUTION_SECONDS:
            since = fault.end
        elif fault.end - since > LONGEST_GRACE - RESOLUTION_SECONDS:
            yield Interruption("outages", fault.begin, fault.end, fault.end + NOTICE_SECONDS)
        until = fault.end


def _by_fault(fault: Fault) -> Interruption | None:
    begin, end = fault.begin, fault.end
    if fault.kind in KILLS:
        return Interruption(fault.kind, begin, math.inf, begin)
    if fault.kind in STOPS:
        return Interruption(fault.kind, begin, math.inf, begin + GRACE_SECONDS + EXIT_SECONDS)
    if fault.kind in ROLLBACKS:
        return Interruption(fault.kind, begin - ROLLBACK_SECONDS, end, math.inf)
    if end - begin < LEAST_SECONDS:
        return None
    if fault.kind in PAUSES:
        return Interruption(fault.kind, begin, end, end + NOTICE_SECONDS)
    if fault.kind == "network gone":
        # The worker knows that it is cut off, and cancels its runs before its lease ends.
        return Interruption(fault.kind, begin, end, begin + LEASE_SECONDS + NOTICE_SECONDS)
    if fault.kind in CUTS:
        return Interruption(fault.kind, begin, end, end + NOTICE_SECONDS)
    return None
