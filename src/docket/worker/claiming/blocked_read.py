"""The read that blocks on the server while an idle worker waits for work."""

from __future__ import annotations

import asyncio

from docket.ledger import Entry, Ledger
from docket.ledger.delivery_reader import DeliveryReader


class BlockedRead:
    """Waits for entries, one read at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._reader = DeliveryReader(ledger)
        # How many entries the read waits for; 0 while there is no read.
        self.count: int = 0
        # Whether a `take` was asked for since the last one was sent. Then the read does not block.
        self.was_interrupted: bool = False

    @property
    def client_id(self) -> int | None:
        """The server's id of the connection that waits. Safe to read from any thread."""
        return self._reader.waiting_id

    @property
    def was_cut(self) -> bool:
        """Whether the connection of the last read was closed: a delivery may be lost with it."""
        return self._reader.was_cut

    def interrupt(self) -> None:
        self.was_interrupted = True
        self._reader.interrupt()

    async def wait(self, worker: str, count: int, seconds: float, *, reads_front: bool) -> list[Entry]:
        """Returns up to `count` entries; none after `seconds` or an interrupt."""
        self.count = count
        try:
            await self._reader.open()
            if self.was_interrupted:
                return []
            return await self._reader.read(worker, count, seconds, reads_front=reads_front)
        except asyncio.CancelledError:
            # Otherwise the server would keep waiting, and deliver entries that no one reads.
            await self._reader.close()
            raise
        finally:
            self.count = 0

    async def close(self) -> None:
        await self._reader.close()
