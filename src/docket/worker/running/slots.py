"""How many runs a worker may start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Slots:
    """Counts the free slots of a worker. A slot that is given back goes to a prefetched run, if
    there is one. In any case the fetcher wakes up."""

    def __init__(self, count: int) -> None:
        self.count: int = count
        self.free: int = count
        # How many slots were given back so far.
        self.turnover: int = 0
        # Starts a prefetched run in a slot that was given back. False if there is none.
        self.pass_on: Callable[[], bool] | None = None
        # How many more slots would be free if the slots were not held; None if they are not held.
        self._held: int | None = None
        self._until_empty = False
        # Called when the slots are no longer held.
        self.on_release: Callable[[], None] | None = None
        self._freed = asyncio.Event()
        # The worker offers no slot before this time (`time.monotonic`).
        self.offers_from: float = 0.0

    def take(self) -> None:
        self.free -= 1

    def give_back(self) -> None:
        self.turnover += 1
        if self._held is not None:
            self._keep_one()
        elif self.pass_on is None or not self.pass_on():
            self.free += 1
        self._freed.set()

    @property
    def are_all_taken(self) -> bool:
        return self.free + (self._held or 0) <= 0

    @property
    def are_held(self) -> bool:
        return self._held is not None

    def hold(self, *, leave: int = 0) -> None:
        """Holds the free slots, except for `leave`, and all slots that are given back: until
        `release()` or, if some were left, until no slot is in use."""
        self._until_empty = leave > 0
        self._held = (self._held or 0) + self.free - leave
        self.free = leave

    def release(self) -> None:
        held, self._held = self._held, None
        self.free += held or 0
        if self.on_release is not None:
            self.on_release()
        self._freed.set()

    def abandon(self) -> None:
        """A run is over, but its thread goes on: its slot does not exist until `restore()`."""
        self.count -= 1
        self._release_if_empty()

    def restore(self) -> None:
        self.count += 1
        self.give_back()

    def _keep_one(self) -> None:
        self._held = (self._held or 0) + 1
        self._release_if_empty()

    def _release_if_empty(self) -> None:
        if self._until_empty and self._held is not None and self._held >= self.count:
            self.release()

    async def wait(self) -> None:
        """Returns when a slot is free."""
        while self.free <= 0:
            await self.wait_for_turnover()

    async def wait_for_turnover(self) -> None:
        """Returns when the next slot is given back or the slots are released."""
        self._freed.clear()
        await self._freed.wait()
