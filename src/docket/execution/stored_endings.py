"""Reads the value or the exception from the ending of a task."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from docket.codec import decode_error, decode_result
from docket.codec.envelope import bare, enveloped
from docket.errors import ExecutionCancelled, ResultExpired, TaskFailed
from docket.ledger import Ledger, read_ending
from docket.ledger.endings import APART, ELSEWHERE, ERROR, VALUE
from docket.model.states import ExecutionState
from docket.storage.records import FinishedRecord, read_reference

if TYPE_CHECKING:
    from .docket_view import DocketView


async def open_ending(docket: DocketView, key: str, record: FinishedRecord) -> Any:
    """The result of a finished task. Raises the task's
    own exception, ExecutionCancelled or ResultExpired."""
    ending = read_ending(record.tail)
    payload, kind = ending.payload, ending.kind
    if kind in (APART, ELSEWHERE):
        if kind == APART:
            payload = await _from_payloads(docket.ledger, key, payload)
        else:
            payload = await _from_result_storage(docket, key, payload)
        kind = VALUE if record.state is ExecutionState.COMPLETED else ERROR
    if record.state is ExecutionState.CANCELLED:
        raise ExecutionCancelled(f"task {key!r} was cancelled" + (f": {ending.error}" if ending.error else ""))
    if kind == ERROR:
        # A completed run has an error too, if its result could not be stored.
        raise decode_error(payload)
    if record.state is ExecutionState.FAILED:
        raise TaskFailed(ending.error or "the task failed")
    return decode_result(payload) if kind == VALUE else None


async def _from_payloads(ledger: Ledger, key: str, reference: bytes) -> bytes:
    found = read_reference(reference)
    stored = await ledger.payloads.fetch(found.id) if found is not None else None
    if stored is None:
        raise ResultExpired(f"the result of task {key!r} is no longer stored")
    return stored


async def _from_result_storage(docket: DocketView, key: str, result_key: bytes) -> bytes:
    stored = await docket.result_storage.get(result_key.decode(), collection=docket.results_collection)
    if stored is None:
        raise ResultExpired(f"the result of task {key!r} is no longer in the result storage")
    return enveloped(base64.b64decode(stored["data"]))


async def stored_ending(ledger: Ledger, key: str) -> bytes | None:
    """The pickled value or exception in the finished record of a task, or None."""
    record = (await ledger.get(key)).finished
    if record is None:
        return None
    ending = read_ending(record.tail)
    payload = ending.payload
    if ending.kind == APART:
        payload = await _from_payloads(ledger, key, payload)
    elif ending.kind not in (VALUE, ERROR):
        return None
    return bare(payload)
