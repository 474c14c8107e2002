"""The attempts of a task that failed and were
retried. lua/parts/failed_attempts.lua stores them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from docket.codec.packing import pack, unpack
from docket.model.times import from_ms
from docket.storage.keys import bytes_text, text_bytes
from docket.storage.schema.records import FAILED_ATTEMPT

from .settlements import Settlement, with_failure

_ROW = FAILED_ATTEMPT.struct
_LONGEST_ERROR = 500


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that failed, and that another one followed or will follow."""

    attempt: int
    started_at: datetime
    failed_at: datetime
    worker: str
    # Type and text, shortened. Only the type if the docket encrypts.
    error: str


def as_retry(settlement: Settlement, attempt: int, worker: str, error: str) -> Settlement:
    """Adds the failed attempt to the settlement that schedules the next one."""
    shown = _shortened(error)
    return with_failure(settlement, failed_attempt(attempt, worker, shown), json.dumps(shown))


def failed_attempt(attempt: int, worker: str, shown: str) -> bytes:
    """The part of the row that the worker writes; the script adds the times."""
    return pack((attempt, text_bytes(worker), shown))


def _shortened(error: str) -> str:
    # Lone surrogates cannot be encoded.
    data = error[: _LONGEST_ERROR + 1].encode("utf-8", "backslashreplace")
    if len(data) <= _LONGEST_ERROR:
        return data.decode()
    return data[: _LONGEST_ERROR - 3].decode("utf-8", "ignore") + "…"


def read_failed_attempts(rows: bytes | None) -> tuple[FailedAttempt, ...]:
    """The oldest first. Rows that cannot be read are left out, since anybody may have written
    them."""
    found: list[FailedAttempt] = []
    at = 0
    while rows and at + _ROW.size <= len(rows):
        started_ms, ended_ms, size = _ROW.unpack_from(rows, at)
        at += _ROW.size
        try:
            attempt, worker, error = unpack(rows[at : at + size])
            if not (isinstance(attempt, int) and isinstance(error, str)):
                raise ValueError("its fields have other types")
            found.append(FailedAttempt(attempt, from_ms(started_ms), from_ms(ended_ms), bytes_text(worker), error))
        except (ValueError, TypeError, AttributeError, OverflowError):
            return tuple(found)
        at += size
    return tuple(found)
