"""docket: background tasks for Python functions, on Redis or Valkey."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from docket._version import __version__

if TYPE_CHECKING:
    from docket import sync, testing
    from docket.agenda import Agenda
    from docket.annotations import Logged
    from docket.codec import Keyring
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
        KeepFailures,
        MaxLosses,
        Perpetual,
        Process,
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
    from docket.errors import (
        DocketError,
        EmptyFilter,
        ExecutionCancelled,
        LeaseLost,
        LetterChanged,
        LetterNotFound,
        MissingPackage,
        NotDurable,
        NotOpen,
        NotPaused,
        NotPermitted,
        PayloadRefused,
        PayloadTooLarge,
        ProcessLost,
        ResultExpired,
        ServerFull,
        ServerUnreachable,
        ServerUnsuitable,
        TaskFailed,
        TaskNotFound,
        TaskNotRegistered,
        TooLong,
        TooManyPauses,
        Undecodable,
        UnknownKey,
        UnknownScheme,
        UnknownVersion,
        Unserializable,
        WorkerLost,
        WouldDeadlock,
    )
    from docket.execution import (
        Disposition,
        Execution,
        ExecutionProgress,
        ExecutionState,
        FailedAttempt,
        TaskCall,
        check_cancelled,
        run_async,
    )
    from docket.inspection.audit import AuditEntry, AuditPage
    from docket.inspection.filters import TaskFilter
    from docket.inspection.reasons import BlockingLimit, Reason, ReasonCode, SlotHolder
    from docket.inspection.statistics import FunctionStats, Period, Stats
    from docket.ledger.history import FinishedRun
    from docket.model.histograms import Histogram
    from docket.model.places import Place
    from docket.operator_verbs import CancelReport
    from docket.strikelist import StrikeList
    from docket.strikelist.pauses import Pause
    from docket.worker import Worker

    from .model.retention import Keep
    from .model.states import EndingKind

__all__ = [
    "Agenda",
    "AuditEntry",
    "AuditPage",
    "BlockingLimit",
    "CallArgument",
    "CancelReport",
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
    "DocketError",
    "EmptyFilter",
    "EndingKind",
    "Execution",
    "ExecutionCancelled",
    "ExecutionProgress",
    "ExecutionState",
    "ExponentialRetry",
    "FailedAttempt",
    "FinishedRun",
    "FunctionStats",
    "Histogram",
    "Keep",
    "KeepFailures",
    "Keyring",
    "LeaseLost",
    "LetterChanged",
    "LetterNotFound",
    "Logged",
    "MaxLosses",
    "MissingPackage",
    "NotDurable",
    "NotOpen",
    "NotPaused",
    "NotPermitted",
    "Pause",
    "PayloadRefused",
    "PayloadTooLarge",
    "Period",
    "Perpetual",
    "Place",
    "Process",
    "ProcessLost",
    "Progress",
    "RateLimit",
    "Reason",
    "ReasonCode",
    "ResultExpired",
    "Retry",
    "ServerFull",
    "ServerUnreachable",
    "ServerUnsuitable",
    "Shared",
    "SlotHolder",
    "Stats",
    "StrikeList",
    "TaskArgument",
    "TaskCall",
    "TaskFailed",
    "TaskFilter",
    "TaskKey",
    "TaskLogger",
    "TaskNotFound",
    "TaskNotRegistered",
    "Timeout",
    "TooLong",
    "TooManyPauses",
    "Undecodable",
    "UnknownKey",
    "UnknownScheme",
    "UnknownVersion",
    "Unserializable",
    "Worker",
    "WorkerLost",
    "WouldDeadlock",
    "__version__",
    "check_cancelled",
    "run_async",
    "sync",
    "testing",
]

# Where the names above live, if not in docket.dependencies.
_HOMES = {
    "Agenda": "agenda",
    **dict.fromkeys(("AuditEntry", "AuditPage"), "inspection.audit"),
    "CancelReport": "operator_verbs",
    "TaskFilter": "inspection.filters",
    "Place": "model.places",
    "Disposition": "execution",
    "Docket": "docket",
    "Execution": "execution",
    "ExecutionProgress": "execution",
    "ExecutionState": "execution",
    "FailedAttempt": "execution",
    "Keep": "model.retention",
    "Keyring": "codec",
    "Logged": "annotations",
    "Pause": "strikelist.pauses",
    "StrikeList": "strikelist",
    "TaskCall": "execution",
    "Worker": "worker",
    **dict.fromkeys(("FunctionStats", "Period", "Stats"), "inspection.statistics"),
    "EndingKind": "model.states",
    "FinishedRun": "ledger.history",
    "Histogram": "model.histograms",
    **dict.fromkeys(("BlockingLimit", "Reason", "ReasonCode", "SlotHolder"), "inspection.reasons"),
    "check_cancelled": "execution",
    "run_async": "execution",
    **dict.fromkeys(
        (
            "DocketError",
            "EmptyFilter",
            "ExecutionCancelled",
            "LeaseLost",
            "LetterChanged",
            "LetterNotFound",
            "MissingPackage",
            "NotDurable",
            "NotOpen",
            "NotPaused",
            "NotPermitted",
            "PayloadRefused",
            "PayloadTooLarge",
            "ProcessLost",
            "ResultExpired",
            "ServerFull",
            "ServerUnreachable",
            "ServerUnsuitable",
            "TaskFailed",
            "TaskNotFound",
            "TaskNotRegistered",
            "TooLong",
            "TooManyPauses",
            "Undecodable",
            "UnknownKey",
            "UnknownScheme",
            "UnknownVersion",
            "Unserializable",
            "WorkerLost",
            "WouldDeadlock",
        ),
        "errors",
    ),
}
_MODULES = frozenset(
    (
        "agenda",
        "annotations",
        "dependencies",
        "docket",
        "errors",
        "execution",
        "instrumentation",
        "strikelist",
        "sync",
        "tasks",
        "testing",
        "web",
        "worker",
    )
)


def __getattr__(name: str) -> Any:
    """Loads a name when it is first used: the command line
    has its own modules, and needs few of these at once."""
    if name in _MODULES:
        return importlib.import_module(f"docket.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'docket' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"docket.{_HOMES.get(name, 'dependencies')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
