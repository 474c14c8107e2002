"""The Python side of the scripts: one method for each step
in the life of a task. Only this package calls scripts."""

from .batcher import Batcher
from .endings import Ending, read_ending
from .ledger import Ledger
from .rows import EnqueueResult, TaskStatus, WorkerRow
from .settlements import (
    RunEnding,
    Settlement,
    SettleResult,
    as_blocked,
    as_chain_end,
    finish,
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
    Staged,
    SuspectNotes,
    Taken,
    TaskCounts,
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
    "Ledger",
    "NewTask",
    "ProgressChange",
    "Reclaimed",
    "RegistrationReply",
    "Renewal",
    "ReservedSlot",
    "RunEnding",
    "Seed",
    "SettleResult",
    "Settlement",
    "Staged",
    "SuspectNotes",
    "Taken",
    "TaskCounts",
    "TaskStatus",
    "UnknownEntry",
    "Unwritten",
    "WaitingFunctions",
    "WorkerRow",
    "as_blocked",
    "as_chain_end",
    "finish",
    "read_ending",
    "requeue",
    "reschedule",
    "unknown_function",
]
