"""Fetches the calls that are stored apart, before their runs begin (docs/design/payloads.md)."""

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
from docket.ledger.payloads import Payloads
from docket.storage.records import TaskRecord, read_task

from .runs import Run
from .service import Service
from .slots import Slots

logger: logging.Logger = logging.getLogger("docket.worker")

# A run whose turn has not come by then is handed back: another worker may be quicker.
LONGEST_WAIT = 3.0
# So often the line is looked at while a payload is on its way.
LOOK_SECONDS = 0.1


class Starter(Protocol):
    """What becomes of a run: it begins, goes back untouched, or fails because it cannot be read."""

    def start(self, run: Run) -> None: ...

    def requeue(self, run: Run) -> None: ...

    def bury(self, run: Run, error: Exception) -> None: ...


@dataclass(slots=True, eq=False)
class Waiting:
    run: Run
    record: TaskRecord
    # In which the run was to begin: what the loader keeps to itself must not leak into tasks.
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    since: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> float:
        return time.monotonic() - self.since


class Loader(Service):
    """One payload at a time, in the order of the claims. Each run holds its slot meanwhile."""

    name = "loading"

    def __init__(
        self,
        payloads: Payloads,
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
        self._line: deque[Waiting] = deque()
        self._filled = asyncio.Event()
        # Slots of runs that were handed back: given back when the line is empty, so that we do not
        # claim what we cannot start.
        self._withheld = 0
        self._closed = False

    @property
    def oldest_age(self) -> float:
        """Seconds that the first run has waited for its call. Safe to call from any thread."""
        waiting = list(self._line)
        return waiting[0].age if waiting else 0.0

    def add(self, run: Run) -> None:
        if self._closed:
            self._starter.requeue(run)
            return
        self._line.append(Waiting(run, read_task(run.record)))
        self._filled.set()

    async def run(self) -> None:
        """Until cancelled; then all that wait are handed back."""
        self._closed = False
        try:
            await super().run()
        finally:
            self._closed = True
            while self._line:
                self._starter.requeue(self._line.popleft().run)
            self._release()

    async def step(self) -> None:
        await self._filled.wait()
        while self._line:
            await self._load(self._line[0])
        self._filled.clear()
        self._release()

    async def recover(self) -> None:
        """The payload could not be fetched; the first in line may go back, too."""
        self._requeue_late(all_of_them=True)
        if not self._line:
            self.is_well()

    async def _load(self, first: Waiting) -> None:
        """It stays first in line until it is settled what becomes of it."""
        fetching = asyncio.create_task(self._payloads.complete(first.record))
        try:
            # After a pause longer than the lease others may have it: the renewal tells.
            while first.run.reason is None and (not fetching.done() or self._is_lapsed()):
                if fetching.done():
                    await asyncio.sleep(LOOK_SECONDS)
                else:
                    await asyncio.wait([fetching], timeout=LOOK_SECONDS)
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
            await cancel_and_wait([fetching], "docket: nobody waits for this payload")

    def _leave(self, item: Waiting, onward: Callable[[Run], None]) -> None:
        self._line.remove(item)
        onward(item.run)

    def _requeue_late(self, *, all_of_them: bool = False) -> None:
        """What was cancelled meanwhile, and whatever has waited
        for too long; not the first, which makes progress."""
        kept = 0 if all_of_them else 1
        late = [item for item in list(self._line)[kept:] if item.run.reason is not None or item.age > LONGEST_WAIT]
        if not late:
            return
        slow = [item for item in late if item.run.reason is None]
        if slow:
            logger.warning("%d task(s) go back: their arguments do not arrive in time", len(slow))
        for item in slow:
            item.run.holds_slot = False
            self._withheld += 1
        for item in late:
            self._leave(item, self._starter.requeue)

    def _release(self) -> None:
        while self._withheld:
            self._withheld -= 1
            self._slots.give_back()
