"""The tracebacks of failed tasks. They are text: nothing is decoded to read one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docket.errors import DocketError, Undecodable
from docket.execution.stored_results import fetch_ending
from docket.ledger.endings import ERROR
from docket.model.states import ExecutionState
from docket.storage.letters import SEALED_TRACEBACK, LetterRecord
from docket.storage.records import FinishedRecord

if TYPE_CHECKING:
    from docket.docket import Docket


async def traceback_of(docket: Docket, key: str, record: FinishedRecord) -> str | None:
    """The traceback in a finished record. None if there is none, or if this process does not have
    the key to open it."""
    try:
        stored = await fetch_ending(docket, key, record)
        if stored.kind != ERROR or not stored.payload:
            return None
        return docket.payloads.open_traceback(key, record.epoch, record.state, stored.payload)
    except (Undecodable, DocketError):
        return None


def traceback_in_letter(docket: Docket, record: LetterRecord) -> str | None:
    """The traceback in a dead letter. None if there is none, or if this process does not have the
    key to open it."""
    if not record.traceback:
        return None
    if not record.flags & SEALED_TRACEBACK:
        return record.traceback.decode("utf-8", "backslashreplace")
    try:
        return docket.payloads.open_traceback(record.key, record.epoch, ExecutionState.FAILED, record.traceback)
    except Undecodable:
        return None
