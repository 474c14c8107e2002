"""Everything that the server keeps about one task. Arguments, results and exceptions are not
decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from docket.codec.call_headers import shown_arguments
from docket.codec.codecs import CODEC_IDS
from docket.codec.envelope import ENCRYPTED, HEADER_SIZE, SIGNED
from docket.execution.progress import read_progress
from docket.ledger import FailedAttempt, TaskStatus, read_ending, read_failed_attempts
from docket.ledger.letters import finished_record
from docket.model.states import ExecutionState
from docket.model.times import from_ms
from docket.storage.records import FinishedRecord, TaskRecord

from .added_times import added_at
from .reason_writer import shown_worker
from .reasons import Reason, as_plain
from .tracebacks import traceback_in_letter, traceback_of
from .waits import explain_wait
from .why import read_reason

if TYPE_CHECKING:
    from docket.docket import Docket

_CODEC_NAMES = {id: name for name, id in CODEC_IDS.items()}


@dataclass(frozen=True, kw_only=True)
class TaskProgress:
    """How far a run has come."""

    current: int | None
    total: int
    message: str | None
    updated_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class TaskDetails:
    """One task, finished or not. What does not apply, or is not known, is None."""

    docket: str
    key: str
    function: str
    state: ExecutionState
    due: datetime
    attempt: int
    generation: int
    # How many workers were lost while they ran this attempt, and whether its body has begun before.
    losses: int
    redelivered: bool
    # The arguments that the function marks as `Logged`, as text, if they are in the record.
    arguments: dict[str, str] | None
    arguments_bytes: int
    arguments_stored_apart: bool
    # How the arguments are stored: pickle or json, and plain, signed or encrypted.
    codec: str | None
    sealed: str | None
    worker: str | None = None
    # When it was added, by the server's clock, if that is known.
    added_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    # What the docket was busy with while a task that has begun to run had to wait.
    waited: str | None = None
    cancel_requested: bool = False
    progress: TaskProgress | None = None
    # The attempts that failed before this one, the last ten.
    failed_attempts: tuple[FailedAttempt, ...] = ()
    error: str | None = None
    traceback: str | None = None
    why: Reason

    def as_json(self) -> dict[str, Any]:
        """The details for programs: plain values, times
        in ISO 8601. All fields are always there."""
        return as_plain(self)


async def read_details(docket: Docket, key: str) -> TaskDetails | None:
    """All about the task of that key, or None if there is none. Raises Undecodable if its finished
    record or its dead letter cannot be read."""
    found = await details_of(docket, key)
    return found[0] if found is not None else None


async def details_of(docket: Docket, key: str) -> tuple[TaskDetails, TaskStatus] | None:
    """The same, and the records from which it follows."""
    reason, facts = await read_reason(docket, key)
    status = await docket.ledger.tasks.get(key)
    letter = None
    if status.task is None and status.finished is None and (letter := facts.read_letter()) is not None:
        # The finished record has expired. The dead letter is kept for longer.
        status.finished = finished_record(letter)
    task = status.task or (status.finished.task if status.finished else None)
    if task is None:
        return None
    envelope = facts.envelope if status.task else _envelope(task.call)
    common: dict[str, Any] = {
        "docket": docket.name,
        "key": key,
        "function": task.function_name,
        "added_at": added_at(key, task),
        "due": from_ms(task.due_ms),
        "attempt": task.attempt,
        "generation": task.generation,
        "losses": task.losses,
        "redelivered": task.redelivered,
        "arguments": shown_arguments(task.call) if task.reference is None else None,
        "arguments_bytes": task.call_size,
        "arguments_stored_apart": task.reference is not None,
        **_sealing(envelope),
        "progress": _progress(status),
        "failed_attempts": read_failed_attempts(status.failed_attempts),
        "why": reason,
    }
    if status.finished is not None:
        found = _ending(status.finished)
        if letter is not None:
            found["traceback"] = traceback_in_letter(docket, letter)
        elif status.finished.state is ExecutionState.FAILED:
            found["traceback"] = await traceback_of(docket, key, status.finished)
    else:
        found = _run(status, task)
    started: datetime | None = found.get("started_at")
    waited = await explain_wait(docket, common["due"], started) if started is not None else None
    return TaskDetails(**common, **found, waited=waited), status


def _run(status: TaskStatus, task: TaskRecord) -> dict[str, Any]:
    run = status.run
    if run is None:
        return {"state": task.state}
    return {
        "state": ExecutionState.RUNNING,
        "worker": shown_worker(run.worker),
        "started_at": from_ms(run.started_ms),
        "cancel_requested": run.cancel_asked,
    }


def _ending(record: FinishedRecord) -> dict[str, Any]:
    ending = read_ending(record.tail)
    return {
        "state": record.state,
        "worker": ending.worker,
        "started_at": from_ms(record.started_ms) if record.started_ms else None,
        "completed_at": from_ms(record.completed_ms),
        "error": ending.error,
    }


def _progress(status: TaskStatus) -> TaskProgress | None:
    stored = status.progress or (status.finished.progress if status.finished else None)
    return as_progress(read_progress(stored)) if stored else None


def as_progress(found: Mapping[str, Any]) -> TaskProgress | None:
    """The progress that an event tells, or None if it tells nothing."""
    if not found:
        return None
    updated = found.get("updated_at")
    return TaskProgress(
        current=found.get("current"),
        total=found.get("total", 100),
        message=found.get("message"),
        updated_at=from_ms(updated) if isinstance(updated, int | float) else None,
    )


def _envelope(call: bytes) -> bytes:
    """The header of the envelope, which follows the trace context."""
    at = 2 + int.from_bytes(call[:2], "little")
    return call[at : at + HEADER_SIZE]


def _sealing(envelope: bytes) -> dict[str, str | None]:
    if len(envelope) < HEADER_SIZE:
        return {"codec": None, "sealed": None}
    _, codec_id, flags = envelope
    return {
        "codec": _CODEC_NAMES.get(codec_id),
        "sealed": {0: "plain", SIGNED: "signed", ENCRYPTED: "encrypted"}.get(flags),
    }
