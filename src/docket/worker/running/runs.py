"""The runs of a worker that are not settled yet."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass, field

from docket.dependencies import AdmissionBlocked, Resolved, TaskOutcome
from docket.execution import Execution
from docket.ledger import Settlement
from docket.model.states import EndingKind


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
