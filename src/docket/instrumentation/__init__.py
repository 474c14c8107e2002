"""Metrics, traces, and the HTTP ports for metrics and health."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .instruments import (
    CACHE_SIZE,
    DEAD_LETTERS,
    DEAD_LETTERS_DROPPED,
    FLEET_RUNNING,
    HELD_TASKS,
    OLDEST_WAITING_AGE,
    PAYLOADS_REFUSED,
    PROCESSES_LOST,
    QUEUE_DEPTH,
    REDIS_DISRUPTIONS,
    SCHEDULE_DEPTH,
    SLOTS_IN_USE,
    STRIKES_IN_EFFECT,
    TASK_DURATION,
    TASK_PUNCTUALITY,
    TASKS_ADDED,
    TASKS_CANCELLED,
    TASKS_COMPLETED,
    TASKS_FAILED,
    TASKS_PERPETUATED,
    TASKS_REDELIVERED,
    TASKS_REPLACED,
    TASKS_RETRIED,
    TASKS_RUNNING,
    TASKS_SCHEDULED,
    TASKS_STARTED,
    TASKS_STRICKEN,
    TASKS_SUCCEEDED,
    TASKS_SUPERSEDED,
    THREADS_ABANDONED,
    UNKNOWN_FUNCTION_TASKS,
    has_receiver,
    is_measured,
    meter,
)
from .tracing import (
    caller_span,
    inject_context,
    is_tracing,
    mark_failed,
    message_getter,
    message_setter,
    run_span,
    suppress_traces,
    tracer,
)

if TYPE_CHECKING:
    from .http import healthcheck_server, metrics_server

_SERVERS = ("healthcheck_server", "metrics_server")


def __getattr__(name: str) -> Any:
    """Imports the servers on first use, because most processes do not need them."""
    if name in _SERVERS:
        return getattr(importlib.import_module("docket.instrumentation.http"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CACHE_SIZE",
    "DEAD_LETTERS",
    "DEAD_LETTERS_DROPPED",
    "FLEET_RUNNING",
    "HELD_TASKS",
    "OLDEST_WAITING_AGE",
    "PAYLOADS_REFUSED",
    "PROCESSES_LOST",
    "QUEUE_DEPTH",
    "REDIS_DISRUPTIONS",
    "SCHEDULE_DEPTH",
    "SLOTS_IN_USE",
    "STRIKES_IN_EFFECT",
    "TASKS_ADDED",
    "TASKS_CANCELLED",
    "TASKS_COMPLETED",
    "TASKS_FAILED",
    "TASKS_PERPETUATED",
    "TASKS_REDELIVERED",
    "TASKS_REPLACED",
    "TASKS_RETRIED",
    "TASKS_RUNNING",
    "TASKS_SCHEDULED",
    "TASKS_STARTED",
    "TASKS_STRICKEN",
    "TASKS_SUCCEEDED",
    "TASKS_SUPERSEDED",
    "TASK_DURATION",
    "TASK_PUNCTUALITY",
    "THREADS_ABANDONED",
    "UNKNOWN_FUNCTION_TASKS",
    "caller_span",
    "has_receiver",
    "healthcheck_server",
    "inject_context",
    "is_measured",
    "is_tracing",
    "mark_failed",
    "message_getter",
    "message_setter",
    "meter",
    "metrics_server",
    "run_span",
    "suppress_traces",
    "tracer",
]
