"""How many runs a worker may start."""

from __future__ import annotations

import asyncio


class Slots:
    """Freed slots wake the fetcher."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._freed = asyncio.Event()

    def take(self) -> None:
        self.free -= 1

    def give_back(self) -> None:
        self.free += 1
        self._freed.set()

    async def wait(self) -> int:
        while self.free <= 0:
            self._freed.clear()
            await self._freed.wait()
        return self.free
