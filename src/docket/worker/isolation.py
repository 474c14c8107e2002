"""A single suspect gets a worker to itself (docs/design/lease-protocol.md, Suspects)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from docket.ledger import Entry, Ledger, SuspectNotes
from docket.storage.faults import PASSING

from .runs import Runs
from .slots import Slots

logger = logging.getLogger("docket.worker")

# A worker that has no room for a suspect leaves the front stream to the others for a moment of this length, in seconds.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
# For so long a worker starts nothing new so that a suspect may have it to itself; twice as long after each time in vain, so that
# tasks that take longer cannot keep a suspect waiting for ever.
RESERVED_SECONDS, MOST_RESERVED_SECONDS = 10.0, 3600.0
# How long a worker that stops tries to put back what it has reserved.
LAST_WAIT_SECONDS = 1.0


class Isolation:
    """What claims have said of suspects, and what this worker does about it.

    The slots are held while the worker prepares for a suspect, and while it runs one alone.
    """

    def __init__(self, ledger: Ledger, slots: Slots, runs: Runs, on_reserve: Callable[[], None]) -> None:
        self._ledger = ledger
        self._slots = slots
        self._runs = runs
        self._on_reserve = on_reserve
        self._front_after = self._reserved_until = 0.0
        self._times_in_vain = 0
        # Filled by the ledger with every claim.
        self.notes = SuspectNotes()
        self.reserved: Entry | None = None

    @property
    def front_pause(self) -> float:
        """For how many seconds the front stream is left to the other workers."""
        return max(self._front_after - asyncio.get_running_loop().time(), 0.0) if self._front_after else 0.0

    @property
    def reads_front(self) -> bool:
        return not self._front_after or self.front_pause <= 0

    def heed(self) -> None:
        """After each claim: does what its answer said, except for a run that is alone, which is still to begin."""
        notes = self.notes
        if notes.refused:
            notes.refused = False
            self.pause_front()
        if notes.reserved is not None:
            self.reserved, notes.reserved = notes.reserved, None
            seconds = min(RESERVED_SECONDS * 2**self._times_in_vain, MOST_RESERVED_SECONDS)
            self._reserved_until = asyncio.get_running_loop().time() + seconds
            self._slots.hold()
            self._on_reserve()

    def pause_front(self) -> None:
        self._front_after = asyncio.get_running_loop().time() + random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE)

    def may_begin(self) -> bool:
        """Whether the suspect that a claim brought can have this worker. A body may still run here that no longer counts."""
        if any(not run.over for run in self._runs.all()):
            self.notes.alone = None
            self.pause_front()
            return False
        return True

    def begin(self, key: str) -> None:
        """One slot is left free, for this task; no other is until this one is given back."""
        logger.warning("task %r was lost with its worker before: it runs alone in this worker", key)
        self.notes.alone = None
        self._slots.hold(leave=1)

    def begun(self, epoch: int) -> None:
        """If it did not begin, since the lease is gone, the slots are free again."""
        if self._runs.find(epoch) is None:
            self._slots.release()

    @property
    def seconds_left(self) -> float:
        """For how long the reservation stands."""
        return max(self._reserved_until - asyncio.get_running_loop().time(), 0.0)

    async def drain(self) -> bool:
        """Waits until nothing runs here. False if that takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.seconds_left):
                await self._runs.wait_idle()
        drained = not len(self._runs)
        self._times_in_vain = 0 if drained else min(self._times_in_vain + 1, 20)
        return drained

    def release(self) -> None:
        """The reservation is over, one way or another."""
        if self.reserved is not None:
            self.reserved = None
            self._slots.release()

    async def close(self, worker: str, worker_json: str) -> None:
        """The worker stops: what it has reserved is for another one."""
        entry, self.reserved = self.reserved or self.notes.reserved, None
        if entry is not None:
            with contextlib.suppress(TimeoutError, *PASSING):
                async with asyncio.timeout(LAST_WAIT_SECONDS):
                    await self._ledger.claim(worker, worker_json, [entry], gives_up=True)
