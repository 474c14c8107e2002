"""Values that are stored apart from records: large calls and results (docs/design/payloads.md), and
those that clients store under their own names."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from docket.errors import ServerFull, Undecodable
from docket.storage.keys import Keys, text_bytes
from docket.storage.records import Reference, TaskRecord
from docket.storage.schema.records import APART
from docket.storage.server import FETCHING, STORING, Server

from .calls import batch_end

# Larger calls and results do not pass through a script.
LARGEST_CALL = 4 * 1024
LARGEST_RESULT = 64 * 1024
# How long a payload is kept that no record refers to yet.
# The script that refers to it runs within seconds, or never.
UNADOPTED_MS = 3_600_000
# How long the result of a run is kept if the task runs again. A waiting caller fetches it at once.
PUBLISHED_MS = 60_000
BATCH = 100


@dataclass(frozen=True, slots=True)
class Payload:
    """A value, the id by which a record refers to it,
    and how long it is kept if no record refers to it.

    `ends_a_run`: a worker stores the value at the end of a run, even if the server's memory is
    full, because the settlement that follows frees memory.
    """

    id: str
    data: bytes
    ttl_ms: int = UNADOPTED_MS
    ends_a_run: bool = False

    @property
    def reference(self) -> bytes:
        return Reference(len(self.data), self.id).pack()


class PayloadStore:
    """Stores and fetches payloads, one at a time in each direction. They have separate connections,
    so that small requests do not wait behind them."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def store(self, payload: Payload, *, patience: float = 1.0) -> None:
        """Stores a payload. `patience` multiplies the usual time limit for the answer."""
        key = text_bytes(self._keys.payload(payload.id))
        words: tuple[bytes | str | int, ...] = ("SET", key, payload.data, "PX", payload.ttl_ms)
        if payload.ttl_ms == UNADOPTED_MS:
            # An abandoned request may still arrive. It must not set an expiry on a payload that a
            # record has adopted in the meantime.
            words = (*words, "NX")
        try:
            await self._server.ask_alone(STORING, key, *words, patience=patience)
        except ServerFull:
            if not payload.ends_a_run:
                raise
            args = ("", payload.id, payload.data, payload.ttl_ms)
            await self._server.run_alone(STORING, "store_payload", [self._keys.root], *args, patience=patience)

    async def connect(self) -> None:
        """Opens the connection for storing payloads."""
        await self._server.connect(self._keys.root, STORING)

    async def fetch(self, id: str) -> bytes | None:
        key = text_bytes(self._keys.payload(id))
        return await self._server.ask_alone(FETCHING, key, "GET", key)

    async def fetch_many(self, references: Sequence[Reference]) -> dict[str, bytes]:
        """The payloads that exist, by id. Several small payloads share a round trip."""
        found: dict[str, bytes] = {}
        start = 0
        while start < len(references):
            end = batch_end(references, start, BATCH, lambda reference: reference.size)
            keys = [text_bytes(self._keys.payload(reference.id)) for reference in references[start:end]]
            values: list[bytes | None] = await self._server.ask_alone(FETCHING, keys[0], "MGET", *keys)
            for reference, value in zip(references[start:end], values, strict=True):
                if value is not None:
                    found[reference.id] = value
            start = end
        return found

    async def complete(self, task: TaskRecord) -> None:
        """Fetches the call of a record that only refers
        to it. Raises Undecodable if the call is gone."""
        reference = task.reference
        if reference is None:
            return
        call = await self.fetch(reference.id)
        if call is None:
            raise Undecodable(f"the arguments, {reference.size:,} bytes that were stored apart, are gone")
        task.call, task.flags = call, task.flags & ~APART


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


def call_payload(data: bytes, *, ends_a_run: bool = False) -> Payload:
    return Payload(secrets.token_hex(16), data, ends_a_run=ends_a_run)


def result_payload(epoch: int, data: bytes, ttl_ms: int) -> Payload:
    """Named after the run, as the scripts name it, and not after the key: a run that no longer
    counts cannot overwrite its successor's result."""
    return Payload(f"r{epoch}", data, ttl_ms + UNADOPTED_MS, ends_a_run=True)


def published_payload(epoch: int, data: bytes) -> Payload:
    """The result of a run after which the task runs again.
    Only the published event refers to it; no record does."""
    return Payload(f"r{epoch}", data, PUBLISHED_MS, ends_a_run=True)
