"""The runs a worker has under way."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass


class CancelReason(enum.Enum):
    """Why we cancelled a run. A cancel without a reason is
    not ours. The value is the message of the cancel."""

    ORDERED = "docket: the task was cancelled"
    LEASE_LOST = "docket: the lease was lost"
    CUT_OFF = "docket: the server cannot be reached"
    SHUTDOWN = "docket: the worker stops"


@dataclass(slots=True, eq=False)
class Run:
    """One delivery on its way through the runner, until its ending is written down."""

    key: str
    record: bytes
    epoch: int
    claimed_ms: float
    # The worker's id at the time: it may have another one when the run ends.
    worker: str = ""
    task: asyncio.Task[None] | None = None
    reason: CancelReason | None = None
    over: bool = False
    holds_slot: bool = False
    # Whether its asyncio task has taken its first step.
    begun: bool = False
    # Its call, if that is stored apart and was fetched.
    call: bytes | None = None
    # Since when it stores a large result (monotonic).
    storing_since: float | None = None

    def cancel(self, reason: CancelReason) -> None:
        """One that has not begun is only marked: it will not begin."""
        if self.reason is CancelReason.CUT_OFF and reason is CancelReason.LEASE_LOST:
            # Cancelled already; now it is certain that others have it.
            self.reason = reason
        if self.over or self.reason is not None:
            return
        if self.task is None:
            self.reason = reason
        elif not self.task.done():
            self.reason = reason
            self.task.cancel(reason.value)


class Runs:
    """By epoch, since a key may have an old run that no longer counts beside a new one."""

    def __init__(self) -> None:
        self._by_epoch: dict[int, Run] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._by_epoch)

    def add(self, run: Run) -> None:
        if not self._by_epoch:
            self._idle.clear()
        self._by_epoch[run.epoch] = run

    def remove(self, run: Run) -> None:
        self._by_epoch.pop(run.epoch, None)
        if not self._by_epoch:
            self._idle.set()

    def find(self, epoch: int) -> Run | None:
        return self._by_epoch.get(epoch)

    def all(self) -> list[Run]:
        return list(self._by_epoch.values())

    def keys(self) -> list[str]:
        return [run.key for run in self._by_epoch.values()]

    def epochs(self) -> list[int]:
        return list(self._by_epoch)

    def cancel_all(self, reason: CancelReason) -> None:
        for run in self.all():
            run.cancel(reason)

    def tasks(self) -> set[asyncio.Task[None]]:
        return {run.task for run in self._by_epoch.values() if run.task is not None and not run.task.done()}

    async def wait_idle(self) -> None:
        """Returns when nothing runs and every ending is written down."""
        await self._idle.wait()
