"""Reads the record of a dead letter."""

from __future__ import annotations

from dataclasses import dataclass

from docket.errors import Undecodable, UnknownVersion

from .keys import bytes_text
from .records import TaskRecord, read_task
from .schema.records import LETTER_HEADER, LETTER_VERSION

_HEADER = LETTER_HEADER.struct
_MOST = 2.0**53


@dataclass(slots=True)
class LetterRecord:
    """A task that failed for good, as it is stored."""

    reason: int
    flags: int
    deaths: int
    edits: int
    died_ms: float
    ends_ms: float
    epoch: int
    started_ms: float
    size: int
    kind: str
    key: str
    error: str
    place: str
    arguments: bytes
    text: str
    traceback: bytes
    task: TaskRecord
    # The task record could not be read.
    is_damaged: bool
    rest: bytes


def read_letter(data: bytes) -> LetterRecord:
    """Raises Undecodable for bytes that are not a letter."""
    if len(data) < _HEADER.size:
        raise Undecodable(f"{len(data)} bytes are not a dead letter")
    version, reason, flags, deaths, edits, died, ends, epoch, started, size, *sizes = _HEADER.unpack_from(data)
    if version != LETTER_VERSION:
        raise UnknownVersion(f"dead letter of version {version}; this release reads version {LETTER_VERSION}")
    if not all(-_MOST * 100 < number < _MOST * 100 for number in (died, ends, epoch, started, size)):
        raise Undecodable("these bytes are not a dead letter")
    at, texts = _HEADER.size, list[bytes]()
    for length in sizes:
        texts.append(data[at : at + length])
        at += length
    if at > len(data):
        raise Undecodable("a dead letter is cut short")
    kind, key, error, place, arguments, text, traceback, task = texts
    record = read_task(task)
    return LetterRecord(
        reason,
        flags,
        deaths,
        edits,
        died,
        ends,
        int(epoch),
        started,
        int(size),
        bytes_text(kind),
        bytes_text(key),
        bytes_text(error),
        bytes_text(place),
        arguments,
        bytes_text(text),
        traceback,
        record,
        not record.entry_ms and not record.due_ms and not record.function_name,
        data[at:],
    )
