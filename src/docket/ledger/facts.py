"""The facts about one task at one moment, from which docket finds why the task does not run
(docs/design/why.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from docket.model.histograms import Histogram
from docket.storage.keys import bytes_text
from docket.storage.letters import LetterRecord, read_letter
from docket.storage.records import FinishedRecord, RunRecord, TaskRecord, read_finished

from .failed_attempts import read_failed_attempts
from .letters import BuriedChain, read_buried_chain
from .rules import StoredPause, stored_pause
from .statistics import Row, read_row


@dataclass(frozen=True, slots=True)
class Delay:
    """The reason for a delay until `at_ms`: a limit of `most` runs within `ms` (`rate`,
    `debounce`), a dependency (`blocked`), or a worker that gave the task back (`requeue`)."""

    kind: str
    at_ms: float
    most: int
    ms: int
    limit: str


@dataclass(frozen=True, slots=True)
class HolderRow:
    """A holder of a slot of a limit. A run that was not found has no key and no worker; a slot that
    is reserved for a task has no epoch."""

    key: str
    worker: str
    epoch: int


@dataclass(frozen=True, slots=True)
class FullLimit:
    """The concurrency limit that a task waits for.
    `rank` is its place among the waiters, from 0."""

    name: str
    most: int
    in_use: int
    waiters: int
    rank: int | None
    holders: tuple[HolderRow, ...]


@dataclass(frozen=True, slots=True)
class SuspectFacts:
    """Which worker has reserved a suspect, and how large its group was when it was formed."""

    reserved_by: str | None
    group_size: int
    was_met: bool


@dataclass(frozen=True, slots=True)
class UnclaimedDelivery:
    """The worker that has received the task and has not claimed it."""

    worker: str
    idle_ms: int
    is_alive: bool


@dataclass(slots=True)
class TaskFacts:
    """Everything that the server knows about one task. A fact that does not apply is None."""

    now_ms: float
    task: TaskRecord | None
    run: RunRecord | None
    # The bytes, because they may not be a finished record.
    finished: bytes | None
    facts: dict[str, Any]

    def number(self, name: str) -> int:
        return int(self.facts.get(name) or 0)

    def time_ms(self, name: str) -> float | None:
        found = self.facts.get(name)
        return None if not found else float(found)

    def text(self, name: str) -> str | None:
        found = self.facts.get(name)
        return None if found is None else bytes_text(found)

    @property
    def envelope(self) -> bytes:
        """The header of the envelope of the call; fewer than 3 bytes if the call is missing."""
        return self.facts.get("envelope") or b""

    @property
    def is_broken(self) -> bool:
        return "is_broken" in self.facts

    @property
    def has_position(self) -> bool:
        """Whether the entry of a ready task waits to be delivered."""
        return "before" in self.facts

    @property
    def execution_ttl_ms(self) -> set[float]:
        """How long processes keep the records of finished tasks, as they have declared it."""
        fields: list[bytes] = self.facts.get("settings") or []
        return {ttl for declaration in fields[::2] if (ttl := _execution_ttl(declaration)) is not None}

    @property
    def alone(self) -> tuple[int, str] | None:
        """How many workers run a suspect alone or wait for that, and one of those suspects."""
        found = self.facts.get("alone")
        return (int(found[0]), bytes_text(found[1])) if found else None

    @property
    def lapsed(self) -> tuple[int, float] | None:
        """How many workers have a lease that has ended, and when any worker renewed last."""
        found = self.facts.get("lapsed")
        return (int(found[0]), float(found[1])) if found else None

    @property
    def hold(self) -> tuple[StoredPause, int] | None:
        """The pause that holds the task, and how many tasks it lets go on before this one."""
        found = self.facts.get("hold")
        if not found:
            return None
        id, value, held, place = found
        return stored_pause(bytes_text(id), value, held), place

    @property
    def pause(self) -> StoredPause | None:
        """The pause that holds the task as soon as a worker claims it."""
        found = self.facts.get("pause")
        return stored_pause(bytes_text(found[0]), found[1], found[2]) if found else None

    @property
    def last_error(self) -> str | None:
        """The error of the last attempt, if the task was retried."""
        attempts = read_failed_attempts(self.facts.get("failed_attempts"))
        return attempts[-1].error if attempts else None

    @property
    def delay(self) -> Delay | None:
        """The note of the limit that delayed the task, if the task is still due at that time."""
        note = self.facts.get("delay")
        fields = bytes_text(note).split(" ", 4) if note else []
        if len(fields) != 5 or not all(field.lstrip("-").isdigit() for field in fields[1:4]):
            return None
        kind, at_ms, most, ms, key = fields
        at = self.time_ms("at")
        if at is None or abs(float(at_ms) - at) >= 1:  # the note has whole milliseconds
            return None
        return Delay(kind, float(at_ms), int(most), int(ms), key.rpartition(":=")[2])

    @property
    def limit(self) -> FullLimit | None:
        found = self.facts.get("limit")
        if not found:
            return None
        name, most, in_use, waiters, rank, holders = found
        named = tuple(HolderRow(bytes_text(key), bytes_text(worker), _number(epoch)) for key, worker, epoch in holders)
        return FullLimit(bytes_text(name), most, in_use, waiters, rank, named)

    @property
    def run_times(self) -> Histogram:
        """The run times of the function lately, for a task that waits for a slot of a limit."""
        total = Row()
        for data in self.facts.get("run_times") or ():
            total.add(read_row(data))
        return Histogram(total.succeeded) + Histogram(total.others)

    @property
    def suspect(self) -> SuspectFacts | None:
        found = self.facts.get("suspect")
        if not found:
            return None
        met, group_size = found
        return SuspectFacts(bytes_text(met.partition(b" ")[2]) or None, group_size, bool(met))

    @property
    def delivery(self) -> UnclaimedDelivery | None:
        found = self.facts.get("delivery")
        if not found:
            return None
        worker, idle_ms, is_alive = found
        return UnclaimedDelivery(bytes_text(worker), idle_ms, bool(is_alive))

    @property
    def last_worker(self) -> tuple[str, float] | None:
        """The worker that was gone last, and when."""
        found = self.facts.get("gone")
        return (bytes_text(found[0]), float(found[1])) if found else None

    @property
    def buried(self) -> BuriedChain | None:
        """An automatic task that workers do not start until it is retried. Its name is not read."""
        note = self.facts.get("buried")
        return read_buried_chain("", note) if note else None

    def read_finished(self) -> FinishedRecord | None:
        """Raises Undecodable if these bytes are not a finished record."""
        return read_finished(self.finished) if self.finished else None

    def read_letter(self) -> LetterRecord | None:
        """The newest dead letter of the key. Raises Undecodable."""
        data = self.facts.get("letter")
        return read_letter(data) if data else None


def _execution_ttl(declaration: bytes) -> float | None:
    try:
        return float(json.loads(declaration.partition(b" ")[2])["execution_ttl"])
    except (ValueError, TypeError, KeyError):
        return None


def _number(data: bytes) -> int:
    return int(data) if data.isdigit() else 0
