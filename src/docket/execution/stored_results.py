"""The values and exceptions in the endings of tasks, and the store in which clients read them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

from docket.codec import Payloads
from docket.codec.envelopes import enveloped
from docket.errors import (
    ExecutionCancelled,
    PayloadRefused,
    ResultExpired,
    TaskFailed,
    Undecodable,
    UnknownKey,
    UnknownVersion,
)
from docket.instrumentation import PAYLOADS_REFUSED
from docket.ledger import Ending, Ledger, read_ending
from docket.ledger.endings import APART, ELSEWHERE, ERROR, OWN_ERROR, VALUE, own_error
from docket.ledger.payloads import StoredValues
from docket.model.states import ExecutionState
from docket.storage.records import FinishedRecord, read_reference

from .context import DocketContext
from .task_call import TaskFunction


@dataclass(slots=True)
class StoredEnding:
    """The ending of a task, with its value or exception still encoded."""

    key: str
    record: FinishedRecord
    ending: Ending
    kind: int
    payload: bytes

    def open(self, docket: DocketContext, function: TaskFunction) -> Any:
        """The result of the task. Raises the task's own exception, ExecutionCancelled, or
        Undecodable if the result cannot be read."""
        try:
            return self._open(docket.payloads, function)
        except PayloadRefused as refused:
            PAYLOADS_REFUSED.add(1, {**docket.labels(), "docket.where": "ending", "docket.reason": refused.reason})
            raise

    def _open(self, payloads: Payloads, function: TaskFunction) -> Any:
        key, kind, ending = self.key, self.kind, self.ending
        epoch, state = self.record.epoch, self.record.state
        if state is ExecutionState.CANCELLED:
            raise ExecutionCancelled(f"task {key!r} was cancelled" + (f": {ending.error}" if ending.error else ""))
        if kind == ERROR:
            # A completed run has an error too, if its result could not be stored.
            raise _open_error(payloads, key, self.record, self.payload)
        if state is ExecutionState.FAILED:
            raise own_error(ending) if kind == OWN_ERROR else TaskFailed(ending.error or "the task failed")
        if kind == VALUE:
            return payloads.open_result(key, epoch, state, function, self.payload)
        if not payloads.accepts_unsigned:
            raise PayloadRefused(f"the end of task {key!r} is not signed, but this docket has a keyring", "unsigned")
        return None


async def fetch_ending(docket: DocketContext, key: str, record: FinishedRecord) -> StoredEnding:
    """The ending of a finished task. Raises ResultExpired if its value is gone."""
    ending = read_ending(record.tail)
    payload, kind = ending.payload, ending.kind
    if kind in (APART, ELSEWHERE):
        if kind == APART:
            payload = await _from_payloads(docket.ledger, key, payload)
        else:
            payload = await _from_result_storage(docket, key, payload)
        kind = VALUE if record.state is ExecutionState.COMPLETED else ERROR
    return StoredEnding(key, record, ending, kind, payload)


def _open_error(payloads: Payloads, key: str, record: FinishedRecord, payload: bytes) -> Exception:
    try:
        return payloads.open_error(key, record.epoch, record.state, payload)
    except (PayloadRefused, UnknownKey, UnknownVersion):
        raise
    except Undecodable as problem:
        return TaskFailed(str(problem))


async def _from_payloads(ledger: Ledger, key: str, reference: bytes) -> bytes:
    found = read_reference(reference)
    stored = await ledger.payloads.fetch(found.id) if found is not None else None
    if stored is None:
        raise ResultExpired(f"the result of task {key!r} is no longer stored")
    return stored


async def _from_result_storage(docket: DocketContext, key: str, result_key: bytes) -> bytes:
    stored = await docket.result_storage.get(result_key.decode(), collection=docket.results_collection)
    if stored is None:
        raise ResultExpired(f"the result of task {key!r} is no longer in the result storage")
    return enveloped(base64.b64decode(stored["data"]))


async def stored_ending(ledger: Ledger, payloads: Payloads, key: str) -> bytes | None:
    """The encoded value or exception in the finished record of a task, or None."""
    record = (await ledger.tasks.get(key)).finished
    if record is None:
        return None
    ending = read_ending(record.tail)
    payload = ending.payload
    if ending.kind == APART:
        payload = await _from_payloads(ledger, key, payload)
    elif ending.kind == OWN_ERROR:
        return payloads.codec.encode_error(own_error(ending), None)
    elif ending.kind not in (VALUE, ERROR):
        return None
    is_error = ending.kind == ERROR or (ending.kind == APART and record.state is not ExecutionState.COMPLETED)
    return payloads.result_body(key, record.epoch, record.state, payload, is_error=is_error)


_DEFAULT_COLLECTION = "default_collection"

Value = dict[str, Any]


class ResultStore:
    """The `result_storage` of a docket that was given none. It has the methods of the stores of
    py-key-value-aio.

    In `docket.results_collection` it shows the value or the exception of each finished task as
    `{"data": …}`, a pickle in base64, as long as docket keeps the task's record. A value that a
    client stores there under the same key hides it.
    """

    def __init__(self, ledger: Ledger, payloads: Payloads) -> None:
        self._ledger = ledger
        self._payloads = payloads
        self._results_collection = ledger.keys.results
        self._kept = StoredValues(ledger.server, ledger.keys)

    async def get(self, key: str, *, collection: str | None = None) -> Value | None:
        name = collection or _DEFAULT_COLLECTION
        kept = await self._kept.get(name, key)
        if kept is not None:
            return json.loads(kept)
        if name != self._results_collection:
            return None
        payload = await stored_ending(self._ledger, self._payloads, key)
        return None if payload is None else {"data": base64.b64encode(payload).decode()}

    async def ttl(self, key: str, *, collection: str | None = None) -> tuple[Value | None, float | None]:
        """The value, and the seconds until it expires; None if it does not expire."""
        name = collection or _DEFAULT_COLLECTION
        value = await self.get(key, collection=name)
        left = await self._kept.ttl_ms(name, key)
        if left is None and value is not None and name == self._results_collection:
            left = await self._kept.record_ttl_ms(key)
        return value, None if left is None else left / 1000

    async def put(
        self,
        key: str,
        value: Mapping[str, Any],
        *,
        collection: str | None = None,
        ttl: SupportsFloat | None = None,
    ) -> None:
        """Raises TypeError for a value that JSON cannot represent, ValueError for a time to live
        that is not positive."""
        ttl_ms = None if ttl is None else round(float(ttl) * 1000)
        if ttl_ms is not None and ttl_ms <= 0:
            raise ValueError(f"ttl={ttl}: a time to live is positive")
        await self._kept.put(collection or _DEFAULT_COLLECTION, key, json.dumps(dict(value)).encode(), ttl_ms)

    async def delete(self, key: str, *, collection: str | None = None) -> bool:
        """Deletes a value that a client stored. The record of a task stays."""
        return await self._kept.delete(collection or _DEFAULT_COLLECTION, key)

    async def get_many(self, keys: Sequence[str], *, collection: str | None = None) -> list[Value | None]:
        return [await self.get(key, collection=collection) for key in keys]

    async def ttl_many(
        self, keys: Sequence[str], *, collection: str | None = None
    ) -> list[tuple[Value | None, float | None]]:
        return [await self.ttl(key, collection=collection) for key in keys]

    async def put_many(
        self,
        keys: Sequence[str],
        values: Sequence[Mapping[str, Any]],
        *,
        collection: str | None = None,
        ttl: SupportsFloat | None = None,
    ) -> None:
        for key, value in zip(keys, values, strict=True):
            await self.put(key, value, collection=collection, ttl=ttl)

    async def delete_many(self, keys: Sequence[str], *, collection: str | None = None) -> int:
        return sum([await self.delete(key, collection=collection) for key in keys])
