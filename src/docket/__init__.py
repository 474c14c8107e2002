"""docket: background tasks for Python functions, on Redis or Valkey."""

from docket import testing
from docket._version import __version__
from docket.agenda import Agenda
from docket.annotations import Logged
from docket.dependencies import (
    CallArgument,
    ConcurrencyLimit,
    Cooldown,
    Cron,
    CurrentDocket,
    CurrentExecution,
    CurrentWorker,
    CycleError,
    Debounce,
    Depends,
    ExponentialRetry,
    Perpetual,
    Progress,
    RateLimit,
    Retry,
    Shared,
    TaskArgument,
    TaskKey,
    TaskLogger,
    Timeout,
)
from docket.docket import Docket
from docket.execution import Disposition, Execution, ExecutionCancelled, ExecutionState, TaskCall
from docket.strikelist import StrikeList
from docket.worker import Worker

__all__ = [
    "Agenda",
    "CallArgument",
    "ConcurrencyLimit",
    "Cooldown",
    "Cron",
    "CurrentDocket",
    "CurrentExecution",
    "CurrentWorker",
    "CycleError",
    "Debounce",
    "Depends",
    "Disposition",
    "Docket",
    "Execution",
    "ExecutionCancelled",
    "ExecutionState",
    "ExponentialRetry",
    "Logged",
    "Perpetual",
    "Progress",
    "RateLimit",
    "Retry",
    "Shared",
    "StrikeList",
    "TaskArgument",
    "TaskCall",
    "TaskKey",
    "TaskLogger",
    "Timeout",
    "Worker",
    "__version__",
    "testing",
]
