"""Waiting out what passes."""

from __future__ import annotations

import asyncio
import random


class Backoff:
    """Growing pauses with full jitter, so that a fleet does not come back all at once."""

    def __init__(self, first: float = 0.05, most: float = 5.0) -> None:
        self._first = first
        self._most = most
        self._next = first

    def reset(self) -> None:
        self._next = self._first

    def next_pause(self) -> float:
        pause = random.uniform(self._first / 2, self._next)
        self._next = min(self._next * 2, self._most)
        return pause

    async def pause(self) -> None:
        await asyncio.sleep(self.next_pause())
