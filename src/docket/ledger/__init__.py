"""The Python side of the scripts: one method for each step
in the life of a task. Only this package calls scripts."""

from .batcher import Batcher
from .endings import Ending, as_going_on, read_ending
from .failed_attempts import FailedAttempt, as_retry, read_failed_attempts
from .ledger import Ledger
from .rows import EnqueueResult, TaskStatus
from .settlements import (
    Settlement,
    SettleResult,
    as_blocked,
    as_chain_end,
    complete,
    finish,
    hold,
    requeue,
    reschedule,
    unknown_function,
)
from .values import (
    Delivery,
    Duty,
    Entry,
    NewTask,
    ProgressChange,
    Reclaimed,
    RegistrationReply,
    Renewal,
    ReservedSlot,
    Seed,
    SlotOffer,
    Staged,
    SuspectNotes,
    Taken,
    UnknownEntry,
    Unwritten,
    WaitingFunctions,
)

__all__ = [
    "Batcher",
    "Delivery",
    "Duty",
    "Ending",
    "EnqueueResult",
    "Entry",
    "FailedAttempt",
    "Ledger",
    "NewTask",
    "ProgressChange",
    "Reclaimed",
    "RegistrationReply",
    "Renewal",
    "ReservedSlot",
    "Seed",
    "SettleResult",
    "Settlement",
    "SlotOffer",
    "Staged",
    "SuspectNotes",
    "Taken",
    "TaskStatus",
    "UnknownEntry",
    "Unwritten",
    "WaitingFunctions",
    "as_blocked",
    "as_chain_end",
    "as_going_on",
    "as_retry",
    "complete",
    "finish",
    "hold",
    "read_ending",
    "read_failed_attempts",
    "requeue",
    "reschedule",
    "unknown_function",
]
