"""How a task is written down: the lifecycle's verbs, each one script. The only caller of scripts."""

from .batching import Batcher
from .endings import Ending, read_ending
from .ledger import Census, Ledger, Look, PageRow, Receipt, WorkerRow
from .settlements import Answer, Settlement, finish, hand_back, reschedule
from .values import Delivery, Entry, KeptSlot, Order, Renewal, UnknownEntry

__all__ = [
    "Answer",
    "Batcher",
    "Census",
    "Delivery",
    "Ending",
    "Entry",
    "KeptSlot",
    "Ledger",
    "Look",
    "Order",
    "PageRow",
    "Receipt",
    "Renewal",
    "Settlement",
    "UnknownEntry",
    "WorkerRow",
    "finish",
    "hand_back",
    "read_ending",
    "reschedule",
]
