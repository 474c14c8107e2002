"""How many runs a worker may start. Warns if runs that hold all slots wait for others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from docket.execution import Execution

logger: logging.Logger = logging.getLogger("docket.worker")

# Between two warnings of a deadlock, per function.
SECONDS_BETWEEN_WARNINGS = 60.0


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
        # How many more slots would be free if none were reserved; None if they are not reserved.
        self._reserved: int | None = None
        self._until_empty = False
        # Called when the slots are no longer reserved.
        self.on_release: Callable[[], None] | None = None
        self._freed = asyncio.Event()
        # The worker offers no slot before this time (`time.monotonic`).
        self.offers_from: float = 0.0

    def take(self) -> None:
        self.free -= 1

    def give_back(self) -> None:
        self.turnover += 1
        if self._reserved is not None:
            self._reserve_one()
        elif self.pass_on is None or not self.pass_on():
            self.free += 1
        self._freed.set()

    @property
    def are_all_taken(self) -> bool:
        return self.free + (self._reserved or 0) <= 0

    @property
    def are_reserved(self) -> bool:
        return self._reserved is not None

    def reserve_all(self, *, leave: int = 0) -> None:
        """Reserves the free slots, except for `leave`, and all slots that are given back: until
        `release()` or, if some were left, until no slot is in use."""
        self._until_empty = leave > 0
        self._reserved = (self._reserved or 0) + self.free - leave
        self.free = leave

    def release(self) -> None:
        reserved, self._reserved = self._reserved, None
        self.free += reserved or 0
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

    def _reserve_one(self) -> None:
        self._reserved = (self._reserved or 0) + 1
        self._release_if_empty()

    def _release_if_empty(self) -> None:
        if self._until_empty and self._reserved is not None and self._reserved >= self.count:
            self.release()

    async def wait(self) -> None:
        """Returns when a slot is free."""
        while self.free <= 0:
            await self.wait_for_turnover()

    async def wait_for_turnover(self) -> None:
        """Returns when the next slot is given back or the slots are released."""
        self._freed.clear()
        await self._freed.wait()


class DeadlockWarning:
    """Warns of task bodies that wait for other tasks of their docket while such bodies hold all
    slots, so that the others cannot begin. In a deadlock, the last body that begins to wait finds
    all slots taken."""

    def __init__(self, worker: str, slots: Slots) -> None:
        self._worker = worker
        self._slots = slots
        self._warned: dict[str, float] = {}

    def note_wait(self, execution: Execution, key: str) -> None:
        """The body of this execution waits for a task that has not begun."""
        if not self._slots.are_all_taken:
            return
        name, now = execution.function_name, time.monotonic()
        if now - self._warned.get(name, -SECONDS_BETWEEN_WARNINGS) < SECONDS_BETWEEN_WARNINGS:
            return
        self._warned[name] = now
        logger.warning(
            "%s waits for the result of task %r, which has not begun, while all %d slots of worker %s are taken. If the "
            "other bodies wait like this, too, and no other worker runs these tasks, this is a deadlock. Raise the "
            "concurrency, or run the awaited tasks on another worker or docket",
            execution.call_repr(),
            key,
            self._slots.count,
            self._worker,
            extra=execution.specific_labels(),
        )
