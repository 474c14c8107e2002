"""The results of a docket as a key-value store, for clients that read them by
`execution.result_key`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

from docket.codec import Payloads
from docket.execution.stored_endings import stored_ending
from docket.ledger import Ledger
from docket.ledger.stored_values import StoredValues

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
