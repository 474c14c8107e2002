"""Fetches calls that are stored as payloads, before their runs begin (docs/design/payloads.md)."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from docket._aio import cancel_and_wait
from docket.errors import Undecodable
from docket.ledger.payloads import PayloadStore
from docket.storage.records import TaskRecord, read_task
from docket.worker.running.runs import Run, Slots
from docket.worker.service import Service

logger: logging.Logger = logging.getLogger("docket.worker")

# A run that has waited this long for its turn is requeued: another worker may be quicker.
LONGEST_WAIT = 3.0
# The interval of the checks for late runs while a payload is being fetched.
CHECK_SECONDS = 0.1


class Starter(Protocol):
    """Starts a run, requeues it before its body has
    begun, or buries it because it cannot be read."""

    def start(self, run: Run) -> bool: ...

    def requeue(self, run: Run) -> None: ...

    def bury(self, run: Run, error: Exception) -> None: ...


@dataclass(slots=True, eq=False)
class WaitingRun:
    run: Run
    record: TaskRecord
    # The run begins in this context, so that the loader's
    # own context variables do not leak into tasks.
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    since: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> float:
        return time.monotonic() - self.since


class Loader(Service):
    """Fetches one payload at a time, in the order of
    the claims. Each waiting run holds its slot."""

    name = "loading"

    def __init__(
        self,
        payloads: PayloadStore,
        slots: Slots,
        starter: Starter,
        is_lapsed: Callable[[], bool],
        labels: dict[str, str],
        most_pause: float,
    ) -> None:
        super().__init__(labels, most_pause)
        self._payloads = payloads
        self._slots = slots
        self._starter = starter
        self._is_lapsed = is_lapsed
        self._waiting: deque[WaitingRun] = deque()
        self._filled = asyncio.Event()
        # The number of slots of requeued runs. The loader frees them when no run waits any more, so
        # that the worker does not claim tasks that it cannot start.
        self._withheld = 0
        self._closed = False

    @property
    def oldest_age(self) -> float:
        """Seconds that the first run has waited for its call. Safe to call from any thread."""
        waiting = list(self._waiting)
        return waiting[0].age if waiting else 0.0

    def add(self, run: Run) -> None:
        if self._closed:
            self._starter.requeue(run)
            return
        self._waiting.append(WaitingRun(run, read_task(run.record)))
        self._filled.set()

    async def run(self) -> None:
        """Runs until cancelled; then requeues all waiting runs."""
        self._closed = False
        try:
            await super().run()
        finally:
            self._closed = True
            while self._waiting:
                self._starter.requeue(self._waiting.popleft().run)
            self._release()

    async def step(self) -> None:
        await self._filled.wait()
        while self._waiting:
            await self._load(self._waiting[0])
        self._filled.clear()
        self._release()

    async def recover(self) -> None:
        """The payload could not be fetched, so even the first run may be requeued."""
        self._requeue_late(keep_first=False)
        if not self._waiting:
            self.clear_problem()

    async def _load(self, first: WaitingRun) -> None:
        """Fetches the payload of the first run, which stays
        first until it begins, is requeued or is buried."""
        fetching = asyncio.create_task(self._payloads.complete(first.record))
        try:
            # If the lease has lapsed, another worker may have
            # the task: wait until a renewal has decided.
            while first.run.reason is None and (not fetching.done() or self._is_lapsed()):
                if fetching.done():
                    await asyncio.sleep(CHECK_SECONDS)
                else:
                    await asyncio.wait([fetching], timeout=CHECK_SECONDS)
                self._requeue_late()
            if first.run.reason is not None:
                self._leave(first, self._starter.requeue)
                return
            await fetching
        except Undecodable as error:
            problem = error
            self._leave(first, lambda run: self._starter.bury(run, problem))
        else:
            first.run.call = first.record.call
            self._leave(first, lambda run: first.context.run(self._starter.start, run))
        finally:
            await cancel_and_wait([fetching], "docket: the payload is no longer needed")

    def _leave(self, item: WaitingRun, then: Callable[[Run], object]) -> None:
        self._waiting.remove(item)
        then(item.run)

    def _requeue_late(self, *, keep_first: bool = True) -> None:
        """Requeues runs that were cancelled or have waited too long. The first run is exempt while
        its payload is being fetched."""
        kept = 1 if keep_first else 0
        late = [item for item in list(self._waiting)[kept:] if item.run.reason is not None or item.age > LONGEST_WAIT]
        if not late:
            return
        slow = [item for item in late if item.run.reason is None]
        if slow:
            logger.warning("%d task(s) are requeued: their arguments did not arrive in time", len(slow))
        for item in slow:
            item.run.holds_slot = False
            self._withheld += 1
        for item in late:
            self._leave(item, self._starter.requeue)

    def _release(self) -> None:
        while self._withheld:
            self._withheld -= 1
            self._slots.give_back()
