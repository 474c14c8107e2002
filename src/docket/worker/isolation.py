"""A single suspect gets a worker process to itself (docs/design/lease-protocol.md, Suspects)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from docket._aio import Backoff, cancel_and_wait
from docket.errors import TRANSIENT
from docket.ledger import Delivery, Entry, Ledger, SuspectNotes

from .process_runs import ProcessRuns
from .runs import Runs
from .slots import Slots

logger: logging.Logger = logging.getLogger("docket.worker")

# A worker that has no room for a suspect leaves the front
# stream to the others for a moment of this length, in seconds.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
# For so long a worker starts nothing new so that a suspect may have it to itself; twice as long
# after each time in vain, so that tasks that take longer cannot keep a suspect waiting for ever.
RESERVED_SECONDS, MOST_RESERVED_SECONDS = 10.0, 3600.0
# How often a worker looks whether the other workers of
# its process are done, or let it begin something again.
LOOK_SECONDS = 0.05
# How long a worker tries to have the mark of a suspect's run written down before its body begins.
MARK_SECONDS = 1.0
# How long a worker that stops tries to put back what it has reserved.
LAST_WAIT_SECONDS = 1.0


class Isolation:
    """What claims have said of suspects, and what this worker does about it.

    The slots are held while the worker prepares for a suspect, and while it runs one alone. So are
    those of the other workers of this process.
    """

    def __init__(
        self,
        ledger: Ledger,
        slots: Slots,
        runs: Runs,
        on_reserve: Callable[[], None],
        process: ProcessRuns,
    ) -> None:
        self._ledger = ledger
        self._slots = slots
        self._runs = runs
        self._on_reserve = on_reserve
        self._front_after = self._reserved_until = 0.0
        self._times_in_vain = 0
        self._process = process
        self._process.add(runs)
        slots.on_release = self._opened
        self._opening: asyncio.Task[None] | None = None
        # Filled by the ledger with every claim.
        self.notes: SuspectNotes = SuspectNotes()
        self.reserved: Entry | None = None

    def ready_notes(self) -> SuspectNotes:
        """For the next claim, which says whether something else runs in this process."""
        self.notes.shares_process = self._process.others_live(self._runs)
        return self.notes

    @property
    def is_kept_out(self) -> bool:
        """Whether this worker must not begin anything: another one of this process runs a suspect
        alone, or is about to."""
        return self._process.keeps_out(self._runs)

    async def wait_for_others(self) -> None:
        """A moment, while another worker of this process has it to itself."""
        await asyncio.sleep(random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))

    @property
    def front_pause(self) -> float:
        """For how many seconds the front stream is left to the other workers."""
        return max(self._front_after - asyncio.get_running_loop().time(), 0.0) if self._front_after else 0.0

    @property
    def reads_front(self) -> bool:
        return not self._front_after or self.front_pause <= 0

    def heed(self) -> None:
        """After each claim: does what its answer said, except
        for a run that is alone, which is still to begin."""
        notes = self.notes
        if notes.refused:
            notes.refused = False
            self.pause_front()
        if notes.reserved is not None:
            self.reserved, notes.reserved = notes.reserved, None
            seconds = min(RESERVED_SECONDS * 2**self._times_in_vain, MOST_RESERVED_SECONDS)
            self._reserved_until = asyncio.get_running_loop().time() + seconds
            self._slots.hold()
            self._process.hold(self._runs)
            self._on_reserve()

    def pause_front(self) -> None:
        self._front_after = asyncio.get_running_loop().time() + random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE)

    def may_begin(self) -> bool:
        """Whether the suspect that a claim brought can have this process, which is kept for it from
        now on. A body may still run here that the server does not know of."""
        if self._process.hold(self._runs) and not self._process.any_lives():
            return True
        self._process.release(self._runs)
        self.notes.alone = None
        self.pause_front()
        return False

    async def begin(self, worker: str, delivery: Delivery) -> None:
        """One slot is left free, for this task; no other is until this one is given back, or the
        run has lived for so long that it no longer looks dangerous."""
        logger.warning("task %r was lost with its worker before: it runs alone in this worker", delivery.key)
        self.notes.alone = None
        self._slots.hold(leave=1)
        with contextlib.suppress(TimeoutError, *TRANSIENT):
            # Without the mark the task is not buried: it then runs alone once more.
            async with asyncio.timeout(MARK_SECONDS):
                await self._ledger.isolate(worker, delivery, alone=True)

    def begun(self, worker: str, delivery: Delivery) -> None:
        """If it did not begin, since the lease is gone, the slots are free again."""
        if self._runs.find(delivery.epoch) is None:
            self._slots.release()
            return
        opening = self._open_after(self.notes.alone_seconds, worker, delivery)
        self._opening = asyncio.create_task(opening, name=f"docket - alone:{delivery.key}")

    async def _open_after(self, seconds: float, worker: str, delivery: Delivery) -> None:
        """The worker takes other work again once the run does not count as alone any more."""
        await asyncio.sleep(seconds)
        backoff = Backoff(most=5.0)
        while (run := self._runs.find(delivery.epoch)) is not None and not run.over:
            try:
                await self._ledger.isolate(worker, delivery, alone=False)
            except TRANSIENT:
                await backoff.pause()
                continue
            logger.info("task %r has run alone for %.0f s: its worker takes other tasks again", delivery.key, seconds)
            self._opening = None
            self._slots.release()
            return

    def _opened(self) -> None:
        """The slots are not held any more."""
        self._process.release(self._runs)
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None

    @property
    def seconds_left(self) -> float:
        """For how long the reservation stands."""
        return max(self._reserved_until - asyncio.get_running_loop().time(), 0.0)

    async def drain(self) -> bool:
        """Waits until nothing runs in this process. False if that takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.seconds_left):
                await self._runs.wait_idle()
                await self._wait_for_process()
        drained = not len(self._runs) and not self._process.any_lives()
        self._times_in_vain = 0 if drained else min(self._times_in_vain + 1, 20)
        return drained

    async def _wait_for_process(self) -> None:
        """Returns when no other worker of this process has a body, or one has that ignores its
        cancel: that may take for ever."""
        while True:
            if not self._process.others_live(self._runs) or self._process.any_ignores_its_cancel():
                return
            await asyncio.sleep(LOOK_SECONDS)

    def release(self) -> None:
        """The reservation is over, one way or another."""
        if self.reserved is not None:
            self.reserved = None
            self._slots.release()

    async def close(self, worker: str, worker_json: str) -> None:
        """The worker stops: what it has reserved is for another one."""
        if self._opening is not None:
            await cancel_and_wait([self._opening], "docket: the worker stops")
        self._process.release(self._runs)
        entry, self.reserved = self.reserved or self.notes.reserved, None
        if entry is not None:
            with contextlib.suppress(TimeoutError, *TRANSIENT):
                async with asyncio.timeout(LAST_WAIT_SECONDS):
                    await self._ledger.claim(worker, worker_json, [entry], gives_up=True)
