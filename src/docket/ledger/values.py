"""The plain values that go into and come out of the ledger."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from docket.storage.keys import text_bytes

from .payloads import Payload

# What a run took of a limit that is about time: the kind of limit, the key that counts it, the
# submission that took it.
Taken = tuple[int, bytes, bytes]

# How long an offer of a slot stands unless it is renewed: a worker whose event loop is blocked must
# not be given work for long.
OFFER_MS = 8000


@dataclass(slots=True)
class NewTask:
    """A call to be written down. Without a `due_ms` it is due now, as it is with `now`, whatever
    the server's clock says; a `fresh` key is known to be unused."""

    key: str
    function_name: str
    call: bytes
    due_ms: float = 0
    attempt: int = 1
    replace: bool = False
    fresh: bool = False
    now: bool = False
    # The call, where it is too large for the record; it is stored before.
    payload: Payload | None = None
    # An earlier attempt may have been stored: what the key
    # has, waiting, running or finished, is this very call.
    unanswered: bool = False
    # An automatic task that a worker seeds: not if its chain was cancelled.
    seed: bool = False


@dataclass(slots=True)
class ProgressChange:
    """A change of a task's progress by the run of this epoch,
    or by anybody else (0). None leaves a field as it is.

    `message` is JSON text. The amount to `add` comes on top of a new `current`.
    """

    key: str
    epoch: int = 0
    add: int | None = None
    current: int | None = None
    total: int | None = None
    message: str | None = None

    @property
    def weight(self) -> int:
        """About how many bytes it takes in a script's arguments."""
        return len(self.key) + len(self.message or "") + 60

    def row(self) -> list[bytes | int | str]:
        """As the script reads it."""
        fields = (self.add, self.current, self.total, self.message)
        return [text_bytes(self.key), self.epoch, *(False if field is None else field for field in fields)]

    def then(self, other: ProgressChange) -> ProgressChange:
        """Both changes as one."""
        if other.current is None:
            added = (self.add or 0) + (other.add or 0) or None
            current = self.current
        else:
            added, current = other.add, other.current
        total = self.total if other.total is None else other.total
        message = self.message if other.message is None else other.message
        return ProgressChange(self.key, self.epoch, added, current, total, message)


class Unwritten(enum.IntEnum):
    """Why a change of progress was not written: the run no
    longer counts, or there is no unfinished task of that key."""

    LOST = 0
    NOT_FOUND = 1


@dataclass(slots=True)
class TaskCounts:
    """How much there is of what. `unknown` are tasks
    that wait for a worker that knows their function."""

    server_ms: float
    unfinished: int
    running: int
    scheduled: int
    parked: int
    dead: int
    limits_in_use: int
    slots_in_use: int
    oldest_waiting_ms: float | None
    unknown: int = 0

    @property
    def ready(self) -> int:
        return max(self.unfinished - self.running - self.scheduled - self.parked - self.unknown, 0)

    @property
    def queued(self) -> int:
        return self.ready + self.parked + self.unknown


@dataclass(slots=True)
class Delivery:
    """A claimed task: its record as stored, the epoch that fences every later write of this run,
    and the server's time of the claim, or of a repeat of it that found the run."""

    key: str
    record: bytes
    epoch: int
    claimed_ms: float = field(default=0.0, compare=False)


@dataclass(slots=True)
class ReservedSlot:
    """A slot that a worker keeps for an offer: whether it may have offered it before, the last
    hand-over that it knows, whether it is to be offered if there is nothing to take, and what the
    server says, if it was heard."""

    offered: bool
    last_epoch: int
    to_offer: bool = True
    answer: int | None = None


@dataclass(slots=True)
class Entry:
    """A stream entry that a blocking read delivered and that is not claimed yet."""

    from_front: bool
    id: str
    key: bytes


@dataclass(slots=True)
class UnknownEntry(Entry):
    """A delivery that the server counts as a worker's and the
    worker does not know. `epoch` is 0 if it is not claimed."""

    epoch: int = 0
    seen_before: bool = False


class Duty(enum.IntEnum):
    """What a worker does for the fleet. The leader stages, sweeps and inspects; the deputy takes
    over if the leader is held up."""

    NONE = 0
    LEADER = 1
    DEPUTY = 2


class Seed(enum.IntEnum):
    """What is to be done about an automatic task: schedule it, or leave it alone since it was
    cancelled or is a dead letter."""

    SCHEDULE = 0
    CANCELLED = 1
    BURIED = 2


@dataclass(slots=True)
class RegistrationReply:
    """The server's answer to a worker that comes onto the roster. Tasks of the functions wait for a
    worker that knows them."""

    server_ms: float
    duty: Duty
    waiting_functions: list[str]


@dataclass(slots=True)
class Reclaimed:
    """One step of reclaiming: workers declared dead, tasks put back,
    buried and cancelled, how much is left to do, whether consumers without
    a lease should be looked for, and the duty of the worker that asked."""

    declared: int = 0
    put_back: int = 0
    buried: int = 0
    cancelled: int = 0
    left: int = 0
    look_for_consumers: bool = False
    duty: Duty = Duty.NONE

    def add(self, step: Reclaimed) -> None:
        """Counts the workers and tasks of another step."""
        self.declared += step.declared
        self.put_back += step.put_back
        self.buried += step.buried
        self.cancelled += step.cancelled


class Staged(NamedTuple):
    """How many tasks were moved, the server's time, when the
    next one is due, and the duty of the worker that asked."""

    moved: int
    now_ms: float
    next_ms: float | None
    duty: Duty


@dataclass(slots=True)
class SuspectNotes:
    """What a claim says of the suspects that it met: the epoch of a run that has the worker to
    itself, and for how long it has, the entry that the worker has reserved, whether some went to
    other workers. The worker says beforehand whether something else runs in its process."""

    alone: int | None = None
    reserved: Entry | None = None
    refused: bool = False
    alone_seconds: float = field(default=0.0, compare=False)
    shares_process: bool = field(default=False, compare=False)

    @property
    def mode(self) -> int:
        """As the scripts know it (lua/parts/claims.lua)."""
        return 3 if self.shares_process else 1


@dataclass(slots=True)
class WaitingFunctions:
    """Functions that a worker knows and whose tasks may wait for it; `left` are those that still
    have some, if the server has said so."""

    names: list[str]
    left: list[str] | None = None


@dataclass(slots=True)
class Renewal:
    """The server's answer to a renewal. Where reclaiming
    or staging is due, this worker is the one to do it."""

    lost: bool
    server_ms: float
    is_registered: bool
    reclaiming_is_due: bool
    staging_is_due: bool
    orders: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
