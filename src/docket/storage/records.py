"""Reads the records of tasks, runs and finished tasks."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from docket.errors import Undecodable, UnknownVersion
from docket.model.states import STATES_BY_NUMBER, ExecutionState

from .keys import text_bytes
from .schema.locations import HELD, IN_STREAM, SCHEDULED
from .schema.records import (
    APART,
    BEGUN,
    CANCEL_ASKED,
    FINISHED_HEADER,
    RECORD_VERSION,
    RESULT_APART,
    REVIVED,
    RUN,
    SUSPECT_AFTER,
    TASK_HEADER,
)

_TASK, _RUN, _FINISHED = TASK_HEADER.struct, RUN.struct, FINISHED_HEADER.struct
_DUE = struct.Struct("<d")
_DUE_AT, _LOSSES_AT, _FLAGS_AT = TASK_HEADER.at("due"), TASK_HEADER.at("losses"), TASK_HEADER.at("flags")
_LENGTH = struct.Struct("<I")
_TEXT_LENGTH = struct.Struct("<H")
_MOST = 2.0**53
# Epochs are microseconds, and a test may set the clock to the year 9999.
_MOST_IN_RUN = 1e18


def name_in_record(function_name: str) -> bytes:
    """The name of the function as a task record has it, before the call."""
    name = text_bytes(function_name)
    return _TEXT_LENGTH.pack(len(name)) + name


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of a value that is stored apart, and its size."""

    size: int
    id: str

    def pack(self) -> bytes:
        return _LENGTH.pack(self.size) + self.id.encode()


def read_reference(data: bytes) -> Reference | None:
    """The reference, or None if these bytes are not one."""
    if len(data) <= _LENGTH.size:
        return None
    return Reference(_LENGTH.unpack_from(data)[0], data[_LENGTH.size :].decode("ascii", "replace"))


@dataclass(slots=True)
class TaskRecord:
    """The record of an unfinished task."""

    location: int
    attempt: int
    losses: int
    generation: int
    due_ms: float
    entry_ms: float
    entry_seq: int
    function_name: str
    call: bytes
    version: int = RECORD_VERSION
    flags: int = 0
    submission: int = 1
    has_begun: bool = False

    @property
    def reference(self) -> Reference | None:
        """The payload of the call, or None if this record has the call itself."""
        return read_reference(self.call) if self.flags & APART else None

    @property
    def call_size(self) -> int:
        reference = self.reference
        return len(self.call) if reference is None else reference.size

    @property
    def entry(self) -> str | None:
        """The id of the task's stream entry."""
        return f"{self.entry_ms:.0f}-{self.entry_seq}" if self.entry_ms else None

    @property
    def redelivered(self) -> bool:
        """Whether an earlier run of this attempt was lost, or requeued after its body had begun."""
        return self.has_begun or self.losses > 0

    @property
    def is_held(self) -> bool:
        """Whether a pause holds the task."""
        return self.location == HELD

    @property
    def state(self) -> ExecutionState:
        return ExecutionState.SCHEDULED if self.location == SCHEDULED else ExecutionState.QUEUED


@dataclass(slots=True)
class RunRecord:
    """A running task: its worker, its start and its epoch."""

    epoch: int
    started_ms: float
    worker: str
    cancel_asked: bool


@dataclass(slots=True)
class FinishedRecord:
    """A task that ended."""

    state: ExecutionState
    epoch: int
    started_ms: float
    completed_ms: float
    task: TaskRecord
    progress: bytes
    tail: bytes


def read_task(data: bytes) -> TaskRecord:
    """Reads a task record. All versions share the header, so that a record of another release can
    be shown. Bytes that are not a record become a record without a call, as in the scripts."""
    if len(data) < _TASK.size:
        return _broken()
    (version, location, flags, attempt, losses, generation, submission, due, entry_ms, entry_seq, length) = (
        _TASK.unpack_from(data)
    )
    start = _TASK.size
    if not 0 <= entry_ms < _MOST or not -_MOST < due < _MOST or start + length > len(data):
        return _broken()
    return TaskRecord(
        location,
        attempt,
        losses % BEGUN,
        generation,
        due,
        entry_ms,
        entry_seq,
        _name(data[start : start + length]),
        data[start + length :],
        version,
        flags,
        submission,
        losses >= BEGUN,
    )


def _name(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "backslashreplace")


def _broken() -> TaskRecord:
    return TaskRecord(IN_STREAM, 1, 0, 1, 0.0, 0.0, 0, "", b"")


def is_stored_apart(data: bytes) -> bool:
    """Whether the call of this task record is a payload."""
    return len(data) >= _TASK.size and bool(data[_FLAGS_AT] & APART)


def is_revived(data: bytes) -> bool:
    """Whether the task was retried after it had failed for good."""
    return len(data) >= _TASK.size and bool(data[_FLAGS_AT] & REVIVED)


def read_due(data: bytes) -> float:
    """Reads only the due time; 0 if these bytes are not a task record."""
    return _DUE.unpack_from(data, _DUE_AT)[0] if len(data) >= _TASK.size else 0.0


def is_suspect(data: bytes) -> bool:
    """Whether the task has so many losses that it is a suspect (docs/design/lease-protocol.md)."""
    return len(data) >= _TASK.size and data[_LOSSES_AT] % BEGUN >= SUSPECT_AFTER


def read_run(data: bytes) -> RunRecord:
    """Reads a run record. Bytes that are not a record become a run of nobody."""
    start = _RUN.size + _TEXT_LENGTH.size
    if len(data) < start:
        return RunRecord(0, 0.0, "", False)
    epoch, started, _, _, flags = _RUN.unpack_from(data)
    (length,) = _TEXT_LENGTH.unpack_from(data, _RUN.size)
    if not _is_sound(epoch, started):
        return RunRecord(0, 0.0, "", False)
    return RunRecord(int(epoch), started, _name(data[start : start + length]), bool(flags & CANCEL_ASKED))


def _is_sound(*numbers: float) -> bool:
    """Whether these are numbers that scripts write: times in ms, also before 1970, and epochs."""
    return all(-_MOST_IN_RUN < number < _MOST_IN_RUN for number in numbers)


@dataclass(slots=True)
class FinishedHead:
    """How a task ended, without its arguments, result and error."""

    state: ExecutionState
    started_ms: float
    completed_ms: float
    task: TaskRecord


def read_finished_head(data: bytes) -> FinishedHead:
    """Reads the first bytes of a finished record, up to the function's name. Raises Undecodable for
    bytes that are not one."""
    _, state, _, started, completed, _ = _finished_fields(data)
    return FinishedHead(state, started, completed, read_task(data[_FINISHED.size :]))


def _finished_fields(data: bytes) -> tuple[int, ExecutionState, int, float, float, int]:
    if len(data) < _FINISHED.size:
        raise Undecodable(f"{len(data)} bytes are not a finished record")
    version, number, epoch, started, completed, length = _FINISHED.unpack_from(data)
    state = STATES_BY_NUMBER.get(number % RESULT_APART)
    if state is None or not state.finished or not _is_sound(epoch, started, completed):
        raise Undecodable("these bytes are not a finished record")
    return version, state, int(epoch), started, completed, length


def read_finished(data: bytes) -> FinishedRecord:
    """Raises Undecodable for bytes that are not a finished record."""
    version, state, epoch, started, completed, length = _finished_fields(data)
    if version != RECORD_VERSION:
        raise UnknownVersion(f"finished record of version {version}; this release reads version {RECORD_VERSION}")
    at = _FINISHED.size
    task = read_task(data[at : at + length])
    at += length
    if at + _LENGTH.size > len(data):
        raise Undecodable("a finished record is cut short")
    (progress_length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    progress = data[at : at + progress_length]
    return FinishedRecord(
        state,
        epoch,
        started,
        completed,
        task,
        progress,
        data[at + progress_length :],
    )
