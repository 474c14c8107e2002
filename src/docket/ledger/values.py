"""Arguments and replies of the ledger's methods."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from docket.codec.packing import pack, unpack
from docket.errors import UnknownVersion
from docket.storage.keys import bytes_text, text_bytes
from docket.storage.schema.requests import AddOptions

from .payloads import Payload
from .rows import EnqueueResult

# What a run took from a rate limit, cooldown or debounce: the kind of limit, the key of its
# counter, and the submission that took it.
Taken = tuple[int, bytes, bytes]


@dataclass(slots=True)
class NewTask:
    """A task to schedule. Without `due_ms` it is due now. With `now` it is due now whatever the
    server's clock says. A `fresh` key is known to be unused."""

    key: str
    function_name: str
    call: bytes
    due_ms: float = 0
    attempt: int = 1
    replace: bool = False
    fresh: bool = False
    now: bool = False
    # The call, if it is too large for the record. It is stored before the task.
    payload: Payload | None = None
    # An earlier request with this task had no answer but may have arrived. If the key has a task,
    # waiting, running or finished, it is this task.
    unanswered: bool = False
    # An automatic task that a worker schedules. It is not scheduled if it was cancelled before.
    seed: bool = False
    # docket generated the key, and an earlier request with it may arrive after this one.
    is_repeat: bool = False
    # For tasks that wait for a replica: what the primary answered, if no replica has confirmed it,
    # and whether docket generated the key.
    stored: EnqueueResult | None = None
    generated: bool = False
    # For a short stream entry: the bytes of the end of a generated key.
    key_end: bytes | None = None
    options: AddOptions | None = None

    def to_bytes(self) -> bytes:
        """The task for another process, which sends it later. Everything in it is sealed."""
        kept = {name: getattr(self, name) for name in _KEPT}
        if self.options is not None:
            kept["options"] = self.options
        payload = None if self.payload is None else (self.payload.id, self.payload.data)
        texts = text_bytes(self.key), text_bytes(self.function_name)
        return pack((_FORMAT, *texts, kept, payload, self.fresh or self.is_repeat))

    @classmethod
    def from_bytes(cls, data: bytes) -> NewTask:
        """Reads what `to_bytes` gave. The process that made the task, or this one, may have sent it
        before: a generated key is looked up, and then it has at most one task."""
        format, key, name, kept, payload, is_generated = unpack(data)
        if format != _FORMAT:
            raise UnknownVersion(f"prepared task of format {format}; this release reads format {_FORMAT}")
        stored = None if payload is None else Payload(*payload)
        task = cls(bytes_text(key), bytes_text(name), payload=stored, **kept)
        task.unanswered = task.generated = is_generated
        return task


# The format of a task for another process, and the fields that need no translation.
_FORMAT = 1
_KEPT = ("call", "due_ms", "attempt", "replace", "now", "seed")


@dataclass(slots=True)
class ProgressChange:
    """A change of a task's progress by the run of this epoch, or by any other caller (epoch 0). A
    field that is None does not change.

    `message` is JSON text. `add` is added to `current`, also to a new `current` in the same change.
    """

    key: str
    epoch: int = 0
    add: int | None = None
    current: int | None = None
    total: int | None = None
    message: str | None = None

    @property
    def weight(self) -> int:
        """The approximate size in a script's arguments, in bytes."""
        return len(self.key) + len(self.message or "") + 60

    def row(self) -> list[bytes | int | str]:
        """The change in the script's format."""
        fields = (self.add, self.current, self.total, self.message)
        return [text_bytes(self.key), self.epoch, *(False if field is None else field for field in fields)]

    def then(self, other: ProgressChange) -> ProgressChange:
        """This change and a later one, combined."""
        if other.current is None:
            added = (self.add or 0) + (other.add or 0) or None
            current = self.current
        else:
            added, current = other.add, other.current
        total = self.total if other.total is None else other.total
        message = self.message if other.message is None else other.message
        return ProgressChange(self.key, self.epoch, added, current, total, message)


class Unwritten(enum.IntEnum):
    """Why a change of progress was not written: LOST means that the run no longer counts, NOT_FOUND
    that the key has no unfinished task."""

    LOST = 0
    NOT_FOUND = 1


@dataclass(slots=True)
class Delivery:
    """A claimed task: its stored record, the epoch that fences all later writes of this run, and
    the server's time of the claim. If the claim was repeated, it is the time of the repetition."""

    key: str
    record: bytes
    epoch: int
    claimed_ms: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """The offer of a slot. Only a script that saw the offer knows its secret, so the secret proves
    the direct delivery (docs/design/proofs.md)."""

    worker: str
    secret: bytes


@dataclass(slots=True)
class ReservedSlot:
    """A slot that a worker reserves for an offer. `offered`: the worker may
    have offered it already. `last_epoch`: the last direct delivery that the
    worker knows of. `to_offer`: offer the slot if no task is ready. `secret`:
    proves the direct delivery. `answer`: the server's answer, if it arrived."""

    offered: bool
    last_epoch: int
    to_offer: bool = True
    secret: bytes = b""
    answer: int | None = None


@dataclass(slots=True)
class Entry:
    """A stream entry that a blocking read delivered and that is not claimed yet."""

    from_front: bool
    id: str
    key: bytes


@dataclass(slots=True)
class UnknownEntry(Entry):
    """A delivery that the server has assigned to a worker but that the worker does not know.
    `epoch` is 0 if it is not claimed, and -1 if its run record is damaged."""

    epoch: int = 0
    seen_before: bool = False

    @property
    def is_damaged(self) -> bool:
        return self.epoch < 0


class Duty(enum.IntEnum):
    """The duty of a worker in the fleet. The leader stages, sweeps and checks leases. The deputy
    takes over if the leader is late."""

    NONE = 0
    LEADER = 1
    DEPUTY = 2


class Seed(enum.IntEnum):
    """The decision of a worker about an automatic task: it schedules the task, or skips it because
    it was cancelled or is a dead letter."""

    SCHEDULE = 0
    CANCELLED = 1
    BURIED = 2


@dataclass(slots=True)
class RegistrationReply:
    """The server's answer to a worker that registers. `secret` proves messages, if the docket has
    one. `waiting_functions` are functions whose tasks wait for a worker that knows them."""

    server_ms: float
    duty: Duty
    secret: bytes | None
    waiting_functions: list[str]


@dataclass(slots=True)
class Reclaimed:
    """The result of one step of reclaiming: the number of workers declared dead and of tasks put
    back, buried and cancelled, the amount of work left, whether to search for consumers without a
    lease, and the duty of the calling worker."""

    declared: int = 0
    put_back: int = 0
    buried: int = 0
    cancelled: int = 0
    left: int = 0
    look_for_consumers: bool = False
    duty: Duty = Duty.NONE

    def add(self, step: Reclaimed) -> None:
        """Adds the workers and tasks of another step."""
        self.declared += step.declared
        self.put_back += step.put_back
        self.buried += step.buried
        self.cancelled += step.cancelled


class Staged(NamedTuple):
    """The result of staging: the number of tasks moved, the server's time, the next due time, and
    the duty of the calling worker."""

    moved: int
    now_ms: float
    next_ms: float | None
    duty: Duty


@dataclass(slots=True)
class SuspectNotes:
    """The report of a claim about suspects. `alone`: the epoch of a run that must be the only run
    of the worker for the next `alone_seconds`. `reserved`: the entry that the worker has reserved.
    `refused`: some suspects were left to other workers. The worker sets `shares_process` before the
    claim if other code runs tasks in its process."""

    alone: int | None = None
    reserved: Entry | None = None
    refused: bool = False
    alone_seconds: float = field(default=0.0, compare=False)
    shares_process: bool = field(default=False, compare=False)

    @property
    def mode(self) -> int:
        """The number for the scripts (lua/parts/claims.lua)."""
        return 3 if self.shares_process else 1


@dataclass(slots=True)
class WaitingFunctions:
    """Functions that a worker knows and whose tasks may wait for it. `left` are the functions that
    still have waiting tasks, if the server has answered."""

    names: list[str]
    left: list[str] | None = None


@dataclass(slots=True)
class Renewal:
    """The server's answer to a renewal. If reclaiming or staging is due, this worker does it."""

    lost: bool
    server_ms: float
    is_registered: bool
    reclaiming_is_due: bool
    staging_is_due: bool
    cancel_requests: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
