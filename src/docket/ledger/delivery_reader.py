"""Waits for deliveries on a connection of its own."""

from __future__ import annotations

import contextlib
from typing import Any

from docket.storage.blocking_connection import BlockingConnection
from docket.storage.faults import SERVER_ERRORS
from docket.storage.keys import GROUP, text_bytes

from .ledger import Ledger
from .values import Entry

# How much longer than it was asked to the server may
# hold a read before the connection counts as dead.
_LATE_SECONDS = 2.0


class DeliveryReader:
    """Blocks on the server until tasks are ready. One read at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._front, self._stream = text_bytes(ledger.keys.front), text_bytes(ledger.keys.stream)
        self._line: BlockingConnection | None = None
        # Whether the last read was ended by closing its connection: a delivery may be lost with it.
        self.was_cut: bool = False

    @property
    def waiting_id(self) -> int | None:
        """The connection of the blocked read, as the
        server names it. Safe to read from any thread."""
        line = self._line
        return line.waiting_id if line is not None else None

    def interrupt(self) -> None:
        """Ends the read that waits, as if its time were over."""
        if self._line is not None:
            self._line.interrupt()

    async def open(self) -> None:
        """Connects, unless that is done."""
        if self._line is None:
            server = self._ledger.server
            try:
                self._line = await server.blocking_connection(self._ledger.keys.stream)
            except SERVER_ERRORS as error:
                raise server.explain(error) from error

    async def read(self, worker: str, count: int, seconds: float, *, reads_front: bool) -> list[Entry]:
        """Up to `count` deliveries; none if the time is over or the read was interrupted."""
        assert self._line is not None
        streams = (self._front, self._stream, ">", ">") if reads_front else (self._stream, ">")
        try:
            reply: Any = await self._line.ask(
                "XREADGROUP", "GROUP", GROUP, worker, "COUNT", count, "BLOCK", max(int(seconds * 1000), 1),
                "STREAMS", *streams, patience=seconds + _LATE_SECONDS,
            )  # fmt: skip
        except SERVER_ERRORS as error:
            raise self._ledger.server.explain(error) from error
        self.was_cut = self._line.was_cut
        return [
            Entry(name == self._front, id.decode(), fields[1] if fields and fields[0] == b"k" else b"")
            for name, rows in (reply or ())
            for id, fields in rows
        ]

    async def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            with contextlib.suppress(*SERVER_ERRORS):
                await line.aclose()
