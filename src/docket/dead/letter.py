"""One dead letter, a page of letters, and all letters at a glance: how many there are, and of which
kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from docket.codec.payloads import shown_arguments
from docket.errors import Undecodable
from docket.execution.context import DocketContext
from docket.inspection.executions import StoredExecution
from docket.inspection.results import traceback_in_letter
from docket.ledger.endings import cut
from docket.ledger.letters import BuriedChain, DeathCause, KindRow, LetterCounts, LetterRow, RunNote, read_run_note
from docket.model.times import from_ms
from docket.storage.letters import read_letter

LetterReason = Literal["failed", "buried", "undecodable", "refused", "not run", "unknown"]
"""Why a task became a dead letter."""
_REASONS: dict[int, LetterReason] = {
    DeathCause.FAILED: "failed",
    DeathCause.BURIED: "buried",
    DeathCause.UNDECODABLE: "undecodable",
    DeathCause.REFUSED: "refused",
    DeathCause.NOT_RUN: "not run",
}


@dataclass(frozen=True, slots=True)
class Letter:
    """A task that failed for good, with all that is known about it.

    `execution` is the task itself. Its arguments stay sealed until they are first used, since
    decoding a pickle can run any code.
    """

    id: int
    key: str
    function: str
    # Why it is here: its last attempt failed, it took its workers down, it could not be read, its
    # payload was refused, or it was retried and a strike or a limit kept it from running.
    reason: LetterReason
    # The class of the error with its module, and its text.
    error: str
    text: str
    traceback: str | None
    place: str
    kind: str
    died_at: datetime
    ends_at: datetime
    started_at: datetime | None
    # Seconds that the last run took.
    duration: float | None
    # How often the task has failed for good; how often its call was edited.
    deaths: int
    edits: int
    attempts: int
    # Workers that were lost while they ran the task.
    losses: int
    generation: int
    size: int
    worker: str | None
    docket_version: str | None
    python_version: str | None
    # The fingerprint of the release that ran it.
    deploy: str | None
    # The trace context of the last run.
    trace: dict[str, str] | None
    # The `Logged` arguments as text, if they are in the record. Nothing is decoded.
    arguments: dict[str, str] | None = None
    execution: StoredExecution | None = field(repr=False, compare=False, default=None)

    def as_json(self) -> dict[str, Any]:
        """All but the task itself, as JSON values."""
        times = ("died_at", "ends_at", "started_at")
        found = {name: getattr(self, name) for name in self.__slots__ if name != "execution"}
        return {name: value.isoformat() if value and name in times else value for name, value in found.items()}


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Letters, the newest first, and the cursor of the next page; None at the end.

    A page may have few letters, or none, and a cursor: the filter matches few of the letters that
    were read in the time of one page. `total` is the number of all letters.
    """

    letters: tuple[Letter, ...]
    cursor: str | None
    total: int


def read_letter_row(docket: DocketContext, row: LetterRow) -> Letter:
    """A letter that somebody has damaged is shown as undecodable."""
    try:
        record = read_letter(row.data)
    except Undecodable as problem:
        return _damaged(row, problem)
    note = read_run_note(record.rest)
    return Letter(
        id=row.id,
        key=record.key,
        function=record.task.function_name,
        reason=_REASONS.get(record.reason, "unknown"),
        error=record.error,
        text=record.text,
        traceback=traceback_in_letter(docket, record),
        place=record.place,
        kind=record.kind,
        died_at=from_ms(record.died_ms),
        ends_at=from_ms(record.ends_ms),
        started_at=from_ms(record.started_ms) if record.started_ms else None,
        duration=note.duration,
        deaths=record.deaths,
        edits=record.edits,
        attempts=record.task.attempt,
        losses=record.task.losses,
        generation=record.task.generation,
        size=record.size,
        **_run_fields(note),
        arguments=shown_arguments(record.task.call) if record.task.reference is None else None,
        execution=StoredExecution(docket, record.key, record.task),
    )


def _run_fields(note: RunNote) -> dict[str, Any]:
    names = ("worker", "docket_version", "python_version", "deploy", "trace")
    return {name: getattr(note, name) for name in names}


def _damaged(row: LetterRow, problem: Undecodable) -> Letter:
    nobody: dict[str, Any] = _run_fields(RunNote())
    return Letter(
        id=row.id,
        key="",
        function="",
        reason="undecodable",
        error="",
        text=cut(str(problem)) or "",
        traceback=None,
        place="",
        kind="",
        died_at=from_ms(0),
        ends_at=from_ms(0),
        started_at=None,
        duration=None,
        deaths=0,
        edits=0,
        attempts=0,
        losses=0,
        generation=0,
        size=len(row.data),
        **nobody,
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """Dead letters of one function that failed with one class of error at one place. If a function
    fails in very many ways, kinds have no place or no error."""

    id: str
    function: str
    error: str
    place: str
    count: int
    size: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class BuriedTask:
    """An automatic task that workers do not start until it is retried (`dead.retry(key=name)`).
    `letter` is the id of its dead letter, or None if that is gone."""

    name: str
    since: datetime
    letter: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Overview:
    """How many dead letters there are, their bytes, how many did not fit and how many have expired
    since the docket exists; their kinds, the most frequent first; and the buried automatic tasks.
    `mark` is the id of the newest letter."""

    letters: int
    size: int
    dropped: int
    expired: int
    mark: int
    kinds: tuple[Kind, ...]
    buried: tuple[BuriedTask, ...] = ()


def as_kind(row: KindRow) -> Kind:
    times = (from_ms(row.first_ms), from_ms(row.last_ms))
    return Kind(row.id, row.function, row.error, row.place, row.count, row.bytes, *times)


def as_overview(counts: LetterCounts, chains: list[BuriedChain]) -> Overview:
    buried = tuple(BuriedTask(chain.name, from_ms(chain.since_ms), chain.id, chain.text) for chain in chains)
    kinds = tuple(as_kind(row) for row in counts.kinds)
    return Overview(counts.letters, counts.bytes, counts.dropped, counts.expired, counts.last_id, kinds, buried)
