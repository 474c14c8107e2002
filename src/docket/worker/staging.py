"""Moves tasks to the stream when they fall due."""

from __future__ import annotations

import asyncio
import contextlib

from docket.ledger import Ledger
from docket.ledger.ledger import BATCH
from docket.storage.subscriptions import Subscriptions

from .service import Service

# A backstop. A message about an earlier time may be lost, but a subscription that was deaf for a while wakes us too.
LONGEST_SLEEP = 30.0


class Stager(Service):
    """Sleeps until the next task is due; an earlier arrival wakes it."""

    name = "scheduler"

    def __init__(self, ledger: Ledger, subscriptions: Subscriptions, labels: dict[str, str], most_pause: float) -> None:
        super().__init__(labels, most_pause)
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._wake = asyncio.Event()
        self._next_ms = float("inf")

    async def open(self) -> None:
        await self._subscriptions.listen(self._ledger.keys.wake_channel, self._heard)
        self._subscriptions.on_gap(self, self._wake.set)

    async def close(self) -> None:
        self._subscriptions.forget_gap(self)
        self._subscriptions.unlisten(self._ledger.keys.wake_channel, self._heard)

    def _heard(self, message: bytes) -> None:
        if float(message) < self._next_ms:
            self._wake.set()

    async def step(self) -> None:
        self._wake.clear()
        # What is heard before the answer is news, whatever was next before: the answer may be older.
        self._next_ms = float("inf")
        moved, now_ms, next_ms = await self._ledger.stage()
        self._next_ms = float("inf") if next_ms is None else next_ms
        if moved == BATCH:
            return
        delay = min((self._next_ms - now_ms) / 1000, LONGEST_SLEEP)
        if delay > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()
