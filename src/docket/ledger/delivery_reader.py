"""Waits for deliveries on a separate connection."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from docket.storage.client.connection import BlockingConnection
from docket.storage.client.faults import SERVER_ERRORS
from docket.storage.keys import text_bytes
from docket.storage.schema.keys import GROUP

from .deliveries import entry_key
from .ledger import Ledger
from .values import Entry

# How much longer than requested the server may block a read before the connection counts as dead.
_LATE_SECONDS = 2.0


class DeliveryReader:
    """Blocks on the server until tasks are ready. One read at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._front, self._stream = text_bytes(ledger.keys.front), text_bytes(ledger.keys.stream)
        self._connection: BlockingConnection | None = None
        # How many entries the present read waits for; 0 while there is no read.
        self.waiting_for: int = 0
        # Whether somebody has interrupted: the next read does not block. The caller clears it.
        self.was_interrupted: bool = False
        # Whether the last read ended because its connection was closed. A delivery may be lost in
        # that case.
        self.was_cut: bool = False

    @property
    def waiting_id(self) -> int | None:
        """The server's id of the connection with the blocked read. Safe to read from any thread."""
        connection = self._connection
        return connection.waiting_id if connection is not None else None

    def interrupt(self) -> None:
        """Ends the blocked read, as if its time had run
        out, or keeps the next one from blocking."""
        self.was_interrupted = True
        if self._connection is not None:
            self._connection.interrupt()

    async def read(self, worker: str, count: int, seconds: float, *, reads_front: bool) -> list[Entry]:
        """Returns up to `count` entries; none if the time runs out or the read is interrupted."""
        self.waiting_for = count
        try:
            connection = self._connection or await self._connect()
            if self.was_interrupted:
                return []
            return await self._read(connection, worker, count, seconds, reads_front)
        except asyncio.CancelledError:
            # Otherwise the server would keep waiting, and deliver entries that no one reads.
            await self.close()
            raise
        finally:
            self.waiting_for = 0

    async def _connect(self) -> BlockingConnection:
        server = self._ledger.server
        try:
            self._connection = await server.blocking_connection(self._ledger.keys.stream)
        except SERVER_ERRORS as error:
            raise server.explain(error) from error
        return self._connection

    async def _read(
        self, connection: BlockingConnection, worker: str, count: int, seconds: float, reads_front: bool
    ) -> list[Entry]:
        streams = (self._front, self._stream, ">", ">") if reads_front else (self._stream, ">")
        try:
            reply: Any = await connection.ask(
                "XREADGROUP", "GROUP", GROUP, worker, "COUNT", count, "BLOCK", max(int(seconds * 1000), 1),
                "STREAMS", *streams, patience=seconds + _LATE_SECONDS,
            )  # fmt: skip
        except SERVER_ERRORS as error:
            raise self._ledger.server.explain(error) from error
        self.was_cut = connection.was_cut
        return [
            Entry(name == self._front, id.decode(), (fields and entry_key(fields)) or b"")
            for name, rows in (reply or ())
            for id, fields in rows
        ]

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*SERVER_ERRORS):
                await connection.aclose()
