"""The user's handle on one task."""

from uncalled_for.introspection import (
    _signature_cache,  # pyright: ignore[reportPrivateUsage] - clients drop entries from it after changing a signature
    get_signature,
)

from docket.errors import ExecutionCancelled
from docket.ledger import FailedAttempt
from docket.model.states import Disposition, ExecutionState

from .arguments import compact_signature
from .execution import Execution
from .functions import check_cancelled, run_async
from .progress import ExecutionProgress, ProgressEvent
from .task_call import TaskCall, TaskFunction
from .waiting import StateEvent

__all__ = [
    "Disposition",
    "Execution",
    "ExecutionCancelled",
    "ExecutionProgress",
    "ExecutionState",
    "FailedAttempt",
    "ProgressEvent",
    "StateEvent",
    "TaskCall",
    "TaskFunction",
    "_signature_cache",
    "check_cancelled",
    "compact_signature",
    "get_signature",
    "run_async",
]
