"""The runs of a worker that are not settled yet, and the slots in which they run."""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from docket.dependencies import AdmissionBlocked, Resolved, TaskOutcome
from docket.execution import Execution
from docket.ledger import Settlement
from docket.model.states import EndingKind

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


class CancelReason(enum.Enum):
    """Why the worker cancelled a run. A cancel without a reason came from elsewhere. The value is
    the message of the cancel."""

    REQUESTED = "docket: the task was cancelled"
    LEASE_LOST = "docket: the lease was lost"
    CUT_OFF = "docket: the server cannot be reached"
    SHUTDOWN = "docket: the worker stops"


# After these a run is not settled as usual: other workers may have it.
LOST_REASONS = (CancelReason.LEASE_LOST, CancelReason.CUT_OFF)


class UnwrittenEnd(enum.Enum):
    """How a run ends for which nothing is written now."""

    # A script has already written the end of the run.
    CLOSED = enum.auto()
    # The lease is lost, or may be. The run is requeued only if the lease turns out to be kept.
    GIVEN_UP = enum.auto()


RunEnd = Settlement | UnwrittenEnd


@dataclass(slots=True, eq=False)
class Run:
    """One delivery. It passes through the steps of the runner until it is settled."""

    key: str
    record: bytes
    epoch: int
    claimed_ms: float
    # The id under which the worker claimed it. The worker may have another id when the run ends.
    worker: str = ""
    task: asyncio.Task[None] | None = None
    reason: CancelReason | None = None
    # Whether the body has ended. The run may not be settled yet.
    over: bool = False
    holds_slot: bool = False
    # Whether its asyncio task has taken its first step.
    begun: bool = False
    # The call, if it is stored apart and was fetched.
    call: bytes | None = None
    # When it began to store a large result (monotonic).
    storing_since: float | None = None
    # How long the body ran. None if it did not begin, or has not ended.
    seconds: float | None = None
    # Set by the steps of the runner: `open`, and `call` unless that step makes the outcome itself.
    execution: Execution = field(init=False, repr=False)
    resolved: Resolved | None = field(init=False, repr=False)
    ended: TaskOutcome | AdmissionBlocked = field(init=False, repr=False)
    # Set by `ends`. What statistics and metrics count once the server has accepted the settlement,
    # if they count the run.
    kind: EndingKind | None = None
    # The part of the task that is reported if the run was superseded. None: the run is not
    # reported, because its body did not begin or was reported before.
    where: str | None = None
    # The error of a run that failed. If the run is not reported, the task could not be read.
    error: BaseException | None = None

    @property
    def is_lost(self) -> bool:
        return self.reason in LOST_REASONS

    def ends(
        self,
        settlement: Settlement,
        kind: EndingKind | None = None,
        where: str | None = "worker",
        error: BaseException | None = None,
    ) -> Settlement:
        """The run ends with this settlement, and in this way."""
        self.kind, self.where, self.error = kind, where, error
        return settlement

    def cancel(self, reason: CancelReason) -> None:
        """Cancels the run. A run that has not started is only marked, and then does not start."""
        if self.reason is CancelReason.CUT_OFF and reason is CancelReason.LEASE_LOST:
            # Already cancelled; now it is certain that other workers have it.
            self.reason = reason
        if self.over or self.reason is not None:
            return
        if self.task is None:
            self.reason = reason
        elif not self.task.done():
            self.reason = reason
            self.task.cancel(reason.value)


class Runs:
    """Runs by epoch: a key may have an old run that no longer counts beside a new one."""

    def __init__(self) -> None:
        self._by_epoch: dict[int, Run] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        # Threads that go on although their run was given up.
        self.abandoned: int = 0

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
        """Returns when nothing runs and every run is settled."""
        await self._idle.wait()
