"""The results of a docket as a key-value store, for clients that read them by
`execution.result_key`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat

from docket.execution.stored_endings import stored_ending
from docket.ledger.stored_values import StoredValues

if TYPE_CHECKING:
    from docket.docket import Docket

_DEFAULT_COLLECTION = "default_collection"

Value = dict[str, Any]


class ResultStore:
    """The `result_storage` of a docket that was given none: a store as those of py-key-value-aio.

    In `docket.results_collection` it shows the value or the exception of
    each finished task as `{"data": …}`, a pickle in base64, as long as the
    task's record is kept. Values that clients put there go before them.
    """

    def __init__(self, docket: Docket) -> None:
        self._docket = docket
        self._kept = StoredValues(docket.server, docket.keys)

    async def get(self, key: str, *, collection: str | None = None) -> Value | None:
        place = collection or _DEFAULT_COLLECTION
        kept = await self._kept.get(place, key)
        if kept is not None:
            return json.loads(kept)
        if place != self._docket.results_collection:
            return None
        payload = await stored_ending(self._docket, key)
        return None if payload is None else {"data": base64.b64encode(payload).decode()}

    async def ttl(self, key: str, *, collection: str | None = None) -> tuple[Value | None, float | None]:
        """The value, and for how many seconds it is still kept; None if that is for ever."""
        place = collection or _DEFAULT_COLLECTION
        value = await self.get(key, collection=place)
        left = await self._kept.ttl_ms(place, key)
        if left is None and value is not None and place == self._docket.results_collection:
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
        """Raises TypeError for a value that JSON does not know,
        ValueError for a time to live that is not positive."""
        ttl_ms = None if ttl is None else round(float(ttl) * 1000)
        if ttl_ms is not None and ttl_ms <= 0:
            raise ValueError(f"ttl={ttl}: a time to live is positive")
        await self._kept.put(collection or _DEFAULT_COLLECTION, key, json.dumps(dict(value)).encode(), ttl_ms)

    async def delete(self, key: str, *, collection: str | None = None) -> bool:
        """Forgets what a client has put there. The record of a task stays."""
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
