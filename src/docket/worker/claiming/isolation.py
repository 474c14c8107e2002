"""Runs a suspect alone in its worker process (docs/design/lease-protocol.md, Suspects)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import weakref
from collections.abc import Callable

from docket._aio import Backoff, cancel_and_wait
from docket.errors import TRANSIENT
from docket.ledger import Delivery, Entry, Ledger, SuspectNotes
from docket.worker.running.runs import Runs, Slots

logger: logging.Logger = logging.getLogger("docket.worker")

# A worker that cannot run a suspect now does not read the front stream for a random time in this
# range, in seconds, so that another worker gets the suspect.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
# How long a worker starts nothing new while it prepares to run a suspect alone. The time doubles
# after each attempt that fails, so that long tasks cannot keep a suspect waiting for ever.
RESERVED_SECONDS, MOST_RESERVED_SECONDS = 10.0, 3600.0
# The interval at which a worker checks whether the other workers of its process have finished.
CHECK_SECONDS = 0.05
# How long a worker tries to mark a suspect's run as alone before the body begins.
MARK_SECONDS = 1.0
# How long a worker that stops tries to put back a reserved suspect.
LAST_WAIT_SECONDS = 1.0


class ProcessRuns:
    """The runs of all workers of this process: a task that kills its process kills them all.

    Knows which bodies run in this process, and whether one worker has the process to itself.

    Workers may run in different threads. A worker that begins a run first adds it to its runs, and
    then checks whether it is kept out. A worker that wants the process first reserves it, and
    then checks for runs. So at least one of the two notices the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A weak set is enough: a body that still runs keeps the runs of its worker alive.
        self._all: weakref.WeakSet[Runs] = weakref.WeakSet()
        self._owner: weakref.ref[Runs] | None = None

    def add(self, runs: Runs) -> None:
        with self._lock:
            self._all.add(runs)

    def others_live(self, runs: Runs) -> bool:
        """Whether a body of another worker runs."""
        return len(self._all) > 1 and any(_bodies(other) for other in self._snapshot() if other is not runs)

    def any_lives(self) -> bool:
        return any(_bodies(runs) for runs in self._snapshot())

    def any_ignores_its_cancel(self) -> bool:
        """Whether a cancelled body still runs. Such a body may never end."""
        return any(
            runs.abandoned or any(run.reason is not None for run in runs.all() if not run.over)
            for runs in self._snapshot()
        )

    def reserve(self, runs: Runs) -> bool:
        """Keeps the other workers of this process from beginning runs. False if another worker
        has already reserved it."""
        with self._lock:
            if self.keeps_out(runs):
                return False
            self._owner = weakref.ref(runs)
            return True

    def release(self, runs: Runs) -> None:
        with self._lock:
            if self._owner is not None and self._owner() in (runs, None):
                self._owner = None

    def keeps_out(self, runs: Runs) -> bool:
        """Whether another worker has the process to itself."""
        owner = self._owner
        return owner is not None and owner() not in (runs, None)

    def _snapshot(self) -> list[Runs]:
        with self._lock:
            return list(self._all)


def _bodies(runs: Runs) -> bool:
    return runs.abandoned > 0 or any(not run.over for run in runs.all())


_THIS_PROCESS = ProcessRuns()


def this_process() -> ProcessRuns:
    return _THIS_PROCESS


class Isolation:
    """Keeps the notes of claims about suspects, and acts on them.

    While the worker prepares for a suspect or runs one alone, it reserves all its slots, and the
    other workers of this process begin nothing.
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
        self._failed_attempts = 0
        self._process = process
        self._process.add(runs)
        slots.on_release = self._opened
        self._opening: asyncio.Task[None] | None = None
        # The ledger fills in the notes with every claim.
        self.notes: SuspectNotes = SuspectNotes()
        self.reserved: Entry | None = None

    def ready_notes(self) -> SuspectNotes:
        """The notes for the next claim, which reports whether this process has runs that the server
        does not know of: those of another worker, and abandoned threads."""
        self.notes.shares_process = self._runs.abandoned > 0 or self._process.others_live(self._runs)
        return self.notes

    @property
    def is_kept_out(self) -> bool:
        """Whether this worker must not begin anything, because another worker of this process runs
        a suspect alone or is about to."""
        return self._process.keeps_out(self._runs)

    async def wait_for_others(self) -> None:
        """Pauses for a moment, while another worker has this process to itself."""
        await asyncio.sleep(random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))

    @property
    def front_pause(self) -> float:
        """Seconds for which this worker still leaves the front stream to the other workers."""
        return max(self._front_after - asyncio.get_running_loop().time(), 0.0) if self._front_after else 0.0

    @property
    def reads_front(self) -> bool:
        return not self._front_after or self.front_pause <= 0

    def apply_notes(self) -> None:
        """Acts on the notes of a claim, after each claim. A
        run that is to be alone begins separately (`begin`)."""
        notes = self.notes
        if notes.refused:
            notes.refused = False
            self.pause_front()
        if notes.reserved is not None:
            self.reserved, notes.reserved = notes.reserved, None
            seconds = min(RESERVED_SECONDS * 2**self._failed_attempts, MOST_RESERVED_SECONDS)
            self._reserved_until = asyncio.get_running_loop().time() + seconds
            self._slots.reserve_all()
            self._process.reserve(self._runs)
            self._on_reserve()

    def pause_front(self) -> None:
        self._front_after = asyncio.get_running_loop().time() + random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE)

    def may_begin(self) -> bool:
        """Reserves this process for the suspect that was just claimed. False if that is not
        possible: a body may still run here that the server does not know of."""
        if self._process.reserve(self._runs) and not self._process.any_lives():
            return True
        self._process.release(self._runs)
        self.notes.alone = None
        self.pause_front()
        return False

    async def begin(self, worker: str, delivery: Delivery) -> None:
        """Leaves one slot free, for this task. The other slots become free when the run ends, or
        when it has lasted long enough to count as harmless."""
        logger.warning("task %r was lost with its worker before: it runs alone in this worker", delivery.key)
        self.notes.alone = None
        self._slots.reserve_all(leave=1)
        with contextlib.suppress(TimeoutError, *TRANSIENT):
            # If the mark is missing and the worker dies, the
            # task is not buried but runs alone once more.
            async with asyncio.timeout(MARK_SECONDS):
                await self._ledger.fleet.isolate(worker, delivery, alone=True)

    def begun(self, worker: str, delivery: Delivery) -> None:
        """Called after the run was started. If it did not begin, because the lease is gone, the
        slots become free again."""
        if self._runs.find(delivery.epoch) is None:
            self._slots.release()
            return
        opening = self._open_after(self.notes.alone_seconds, worker, delivery)
        self._opening = asyncio.create_task(opening, name=f"{self._ledger.server.name} - alone:{delivery.key}")

    async def _open_after(self, seconds: float, worker: str, delivery: Delivery) -> None:
        """After `seconds` the run no longer counts as
        alone, and the worker claims other tasks again."""
        await asyncio.sleep(seconds)
        backoff = Backoff(most=5.0)
        while (run := self._runs.find(delivery.epoch)) is not None and not run.over:
            try:
                await self._ledger.fleet.isolate(worker, delivery, alone=False)
            except TRANSIENT:
                await backoff.pause()
                continue
            logger.info("task %r has run alone for %.0f s: its worker takes other tasks again", delivery.key, seconds)
            self._opening = None
            self._slots.release()
            return

    def _opened(self) -> None:
        """Called when the slots are no longer reserved."""
        self._process.release(self._runs)
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None

    @property
    def seconds_left(self) -> float:
        """Seconds until the reservation ends."""
        return max(self._reserved_until - asyncio.get_running_loop().time(), 0.0)

    async def drain(self) -> bool:
        """Waits until nothing runs in this process. False if
        something still runs when the reservation ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.seconds_left):
                await self._runs.wait_idle()
                await self._wait_for_process()
        drained = not len(self._runs) and not self._process.any_lives()
        self._failed_attempts = 0 if drained else min(self._failed_attempts + 1, 20)
        return drained

    async def _wait_for_process(self) -> None:
        """Returns when no other worker of this process has a running body, or when a body ignores
        its cancel and may never end."""
        while True:
            if not self._process.others_live(self._runs) or self._process.any_ignores_its_cancel():
                return
            await asyncio.sleep(CHECK_SECONDS)

    def release(self) -> None:
        """Ends the reservation, if there is one."""
        if self.reserved is not None:
            self.reserved = None
            self._slots.release()

    async def close(self, worker: str, worker_json: str) -> None:
        """The worker stops: puts back the suspect that it has reserved, for another worker."""
        if self._opening is not None:
            await cancel_and_wait([self._opening], "docket: the worker stops")
        self._process.release(self._runs)
        entry, self.reserved = self.reserved or self.notes.reserved, None
        if entry is not None:
            with contextlib.suppress(TimeoutError, *TRANSIENT):
                async with asyncio.timeout(LAST_WAIT_SECONDS):
                    await self._ledger.deliveries.claim(worker, worker_json, [entry], gives_up=True)
