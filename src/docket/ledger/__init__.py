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
    ending_its_chain,
    finish,
    giving_back,
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
    "ending_its_chain",
    "finish",
    "giving_back",
    "read_ending",
    "requeue",
    "reschedule",
    "unknown_function",
]
