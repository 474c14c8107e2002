"""Counts of tasks: a census of the docket, and the unfinished tasks of each function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from docket.storage.keys import bytes_text

from .script_calls import ScriptCalls
from .statistics import Row, read_fields

# How many tasks one script call counts.
_COUNTED_AT_ONCE, _SAMPLED_AT_ONCE = 500, 250
# No minute is later: a census that begins there has no minutes.
NO_MINUTE = 2**53


@dataclass(frozen=True, slots=True)
class CensusRow:
    """The counts of one moment."""

    server_ms: float
    unfinished: int
    running: int
    scheduled: int
    parked: int
    # They wait for a worker that knows their function.
    unknown: int
    # A pause holds them.
    held: int
    # Dead letters, and those that did not fit (`Docket(keep_failures=…)`) since the docket exists.
    dead: int
    dropped: int
    limits: int
    oldest_ready_ms: float | None
    workers: int
    stopping: int
    # Slots of limits in use; 0 if they were not counted.
    slots: int
    # The sums of all functions, by minute since 1970; none if only counts were asked for.
    minutes: dict[int, Row] = field(default_factory=dict[int, Row])

    @property
    def ready(self) -> int:
        others = self.running + self.scheduled + self.parked + self.unknown + self.held
        return max(self.unfinished - others, 0)

    @property
    def queued(self) -> int:
        return self.ready + self.parked + self.unknown + self.held


def read_census_row(reply: Sequence[Any]) -> CensusRow:
    """The census that the script has answered with."""
    oldest, workers, stopping, slots = reply[10:14]
    oldest_ms = float(oldest.partition(b"-")[0]) if oldest else None
    minutes: dict[int, Row] = {}
    for i in range(14, len(reply), 2):
        total = minutes.setdefault(reply[i], Row())
        for _, row in read_fields(reply[i + 1]):
            total.add(row)
    now, unfinished, running, scheduled, parked, unknown, held, dead, dropped, limits = reply[:10]
    counts = (unfinished, running, scheduled, parked, unknown, held, dead, dropped, limits)
    return CensusRow(now, *counts, oldest_ms, workers, stopping, slots, minutes)


@dataclass(slots=True)
class FunctionCount:
    """The number of unfinished tasks of one function by state, and the earliest due time. `held`
    tasks count as queued, too."""

    scheduled: int = 0
    queued: int = 0
    running: int = 0
    earliest_due_ms: float = field(default=math.inf)
    held: int = 0


async def count_by_function(ledger: ScriptCalls) -> dict[str, FunctionCount]:
    """Counts all unfinished tasks by function and state,
    without reading their arguments into this process."""
    counts: dict[str, FunctionCount] = {}
    cursor = b"0"
    while True:
        reply = await ledger.ask("count_by_function", (cursor, _COUNTED_AT_ONCE))
        for name, scheduled, queued, running, due, held in reply[1:]:
            known = counts.setdefault(bytes_text(name), FunctionCount())
            known.scheduled += scheduled
            known.queued += queued
            known.running += running
            known.held += held
            known.earliest_due_ms = min(known.earliest_due_ms, float(due))
        cursor = reply[0]
        if cursor == b"0":
            return counts


async def sample_by_function(ledger: ScriptCalls, count: int) -> tuple[dict[str, FunctionCount], int, int]:
    """Counts unfinished tasks by function and state in a random sample of about `count` tasks. Also
    returns the size of the sample, and the number of all tasks."""
    counts: dict[str, FunctionCount] = {}
    read = total = 0
    while read < count:
        total, found, *rows = await ledger.ask("sample_tasks", (min(count - read, _SAMPLED_AT_ONCE),))
        for name, scheduled, queued, running in rows:
            known = counts.setdefault(bytes_text(name), FunctionCount())
            known.scheduled += scheduled
            known.queued += queued
            known.running += running
        read += found
        if found < min(count, _SAMPLED_AT_ONCE):
            # There are no more.
            break
    return counts, read, total
