"""How many runs a worker may start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Slots:
    """A slot that is given back goes to the next in line, if there is one. Either way the fetcher is woken."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.free = count
        # How often one was given back.
        self.turnover = 0
        self.pass_on: Callable[[], bool] | None = None
        self._freed = asyncio.Event()

    def take(self) -> None:
        self.free -= 1

    def give_back(self) -> None:
        self.turnover += 1
        if self.pass_on is None or not self.pass_on():
            self.free += 1
        self._freed.set()

    async def wait(self) -> None:
        """Returns when one is free."""
        while self.free <= 0:
            await self.wait_for_turnover()

    async def wait_for_turnover(self) -> None:
        """Returns when one was given back since the last time somebody waited for that."""
        self._freed.clear()
        await self._freed.wait()
