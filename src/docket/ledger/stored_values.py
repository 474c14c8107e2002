"""Values that clients store on the docket's server under their own names."""

from __future__ import annotations

from docket.storage.keys import Keys, text_bytes
from docket.storage.server import Server


class StoredValues:
    """Bytes by collection and key, with a time to live."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def get(self, collection: str, key: str) -> bytes | None:
        name = self._name(collection, key)
        return await self._server.ask(name, "GET", name)

    async def put(self, collection: str, key: str, data: bytes, ttl_ms: int | None) -> None:
        name = self._name(collection, key)
        await self._server.ask(name, "SET", name, data, *(("PX", ttl_ms) if ttl_ms is not None else ()))

    async def delete(self, collection: str, key: str) -> bool:
        name = self._name(collection, key)
        return bool(await self._server.ask(name, "DEL", name))

    async def ttl_ms(self, collection: str, key: str) -> int | None:
        """The remaining time to live. None if the value does not expire or does not exist."""
        return await self._left_ms(self._name(collection, key))

    async def record_ttl_ms(self, key: str) -> int | None:
        """The remaining time to live of the finished record of a task."""
        return await self._left_ms(text_bytes(self._keys.run(key)))

    async def _left_ms(self, name: bytes) -> int | None:
        left: int = await self._server.ask(name, "PTTL", name)
        return left if left >= 0 else None

    def _name(self, collection: str, key: str) -> bytes:
        return text_bytes(self._keys.kept(collection, key))
