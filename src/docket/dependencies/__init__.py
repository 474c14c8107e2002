"""The dependencies and behaviours that a task function declares in its signature."""

from uncalled_for import (
    CallArgument,
    CycleError,
    Dependency,
    Depends,
    FailedDependency,
    Shared,
    SharedContext,
    get_annotation_dependencies,
    get_dependency_parameters,
    resolved_dependencies,
)
from uncalled_for import DependencyFactory as DependencyFunction
from uncalled_for.functional import (
    _Depends,  # pyright: ignore[reportPrivateUsage] - clients import these two from here
)
from uncalled_for.introspection import (
    _parameter_cache,  # pyright: ignore[reportPrivateUsage]
)

from docket.execution.context import WorkerContext, current_docket, current_execution, current_worker
from docket.model.times import format_duration

from .admission import SettledByLimit
from .argument_checks import argument_check
from .base import AdmissionBlocked, CompletionHandler, FailureHandler, Runtime, TaskOutcome
from .concurrency import ConcurrencyBlocked, ConcurrencyLimit
from .cooldown import Cooldown
from .cron import Cron
from .current import (
    CurrentDocket,
    CurrentExecution,
    CurrentWorker,
    Progress,
    TaskArgument,
    TaskKey,
    TaskLogger,
)
from .debounce import Debounce
from .declarations import validate_dependencies
from .fingerprints import logged_fingerprints
from .keep_failures import KeepFailures, kept_age_ms, kept_ages
from .max_losses import MaxLosses, max_losses_of
from .perpetual import Perpetual
from .plan import (
    Plan,
    get_single_dependency_of_type,
    get_single_dependency_parameter_of_type,
    governing,
    plan_for,
)
from .process import Process
from .rate_limit import RateLimit
from .resolution import Resolved, resolve, resolve_immediately
from .retry import ExponentialRetry, ForcedRetry, Retry
from .timeout import Timeout

__all__ = [
    "AdmissionBlocked",
    "CallArgument",
    "CompletionHandler",
    "ConcurrencyBlocked",
    "ConcurrencyLimit",
    "Cooldown",
    "Cron",
    "CurrentDocket",
    "CurrentExecution",
    "CurrentWorker",
    "CycleError",
    "Debounce",
    "Dependency",
    "DependencyFunction",
    "Depends",
    "ExponentialRetry",
    "FailedDependency",
    "FailureHandler",
    "ForcedRetry",
    "KeepFailures",
    "MaxLosses",
    "Perpetual",
    "Plan",
    "Process",
    "Progress",
    "RateLimit",
    "Resolved",
    "Retry",
    "Runtime",
    "SettledByLimit",
    "Shared",
    "SharedContext",
    "TaskArgument",
    "TaskKey",
    "TaskLogger",
    "TaskOutcome",
    "Timeout",
    "WorkerContext",
    "_Depends",
    "_parameter_cache",
    "argument_check",
    "current_docket",
    "current_execution",
    "current_worker",
    "format_duration",
    "get_annotation_dependencies",
    "get_dependency_parameters",
    "get_single_dependency_of_type",
    "get_single_dependency_parameter_of_type",
    "governing",
    "kept_age_ms",
    "kept_ages",
    "logged_fingerprints",
    "max_losses_of",
    "plan_for",
    "resolve",
    "resolve_immediately",
    "resolved_dependencies",
    "validate_dependencies",
]
