"""How a task is written down: the lifecycle's verbs, each one script. The only caller of scripts."""

from .batching import Batcher
from .endings import Ending, read_ending
from .ledger import Ledger
from .rows import Look, PageRow, Receipt, WorkerRow
from .settlements import (
    Answer,
    RunEnding,
    Settlement,
    ending_its_chain,
    finish,
    giving_back,
    hand_back,
    reschedule,
    unknown_function,
)
from .values import (
    Census,
    Delivery,
    Duty,
    Entry,
    KeptSlot,
    Order,
    Reclaimed,
    Registration,
    Renewal,
    Seed,
    Staged,
    SuspectNotes,
    Taken,
    UnknownEntry,
    WaitingFunctions,
)

__all__ = [
    "Answer",
    "Batcher",
    "Census",
    "Delivery",
    "Duty",
    "Ending",
    "Entry",
    "KeptSlot",
    "Ledger",
    "Look",
    "Order",
    "PageRow",
    "Receipt",
    "Reclaimed",
    "Registration",
    "Renewal",
    "RunEnding",
    "Seed",
    "Settlement",
    "Staged",
    "SuspectNotes",
    "Taken",
    "UnknownEntry",
    "WaitingFunctions",
    "WorkerRow",
    "ending_its_chain",
    "finish",
    "giving_back",
    "hand_back",
    "read_ending",
    "reschedule",
    "unknown_function",
]
