"""Metric instruments and trace propagation. Next to nothing while nobody listens."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.propagators.textmap import Getter, Setter

meter = metrics.get_meter("docket")
tracer = trace.get_tracer("docket")

TASKS_ADDED = meter.create_counter("docket_tasks_added", description="Tasks added", unit="1")
TASKS_REPLACED = meter.create_counter("docket_tasks_replaced", description="Tasks replaced", unit="1")
TASKS_SCHEDULED = meter.create_counter("docket_tasks_scheduled", description="Tasks written down, added or replaced", unit="1")
TASKS_CANCELLED = meter.create_counter("docket_tasks_cancelled", description="Tasks cancelled", unit="1")
TASKS_STARTED = meter.create_counter("docket_tasks_started", description="Runs started", unit="1")
TASKS_REDELIVERED = meter.create_counter("docket_tasks_redelivered", description="Runs of tasks that lost a worker before", unit="1")
TASKS_STRICKEN = meter.create_counter("docket_tasks_stricken", description="Tasks blocked by a strike", unit="1")
TASKS_SUPERSEDED = meter.create_counter("docket_tasks_superseded", description="Runs that were replaced while they ran", unit="1")
TASKS_COMPLETED = meter.create_counter("docket_tasks_completed", description="Runs that ended, well or not", unit="1")
TASKS_FAILED = meter.create_counter("docket_tasks_failed", description="Runs that failed", unit="1")
TASKS_SUCCEEDED = meter.create_counter("docket_tasks_succeeded", description="Runs that succeeded", unit="1")
TASKS_RETRIED = meter.create_counter("docket_tasks_retried", description="Failed runs that will be retried", unit="1")
TASKS_PERPETUATED = meter.create_counter("docket_tasks_perpetuated", description="Runs that scheduled their successor", unit="1")
TASK_DURATION = meter.create_histogram("docket_task_duration", description="How long runs take", unit="s")
TASK_PUNCTUALITY = meter.create_histogram("docket_task_punctuality", description="How late runs start", unit="s")
TASKS_RUNNING = meter.create_up_down_counter("docket_tasks_running", description="Runs going on", unit="1")
REDIS_DISRUPTIONS = meter.create_counter("docket_redis_disruptions", description="Lost connections to the server", unit="1")
STRIKES_IN_EFFECT = meter.create_up_down_counter("docket_strikes_in_effect", description="Strikes in effect", unit="1")
QUEUE_DEPTH = meter.create_gauge("docket_queue_depth", description="Tasks that are ready and wait for a worker", unit="1")
SCHEDULE_DEPTH = meter.create_gauge("docket_schedule_depth", description="Tasks that wait for their time", unit="1")
CACHE_SIZE = meter.create_gauge("docket_cache_size", description="Entries in docket's own caches", unit="1")

Message = dict[bytes, bytes]


class MessageGetter(Getter[Message]):
    """Reads a trace context from a mapping of bytes."""

    def get(self, carrier: Message, key: str) -> list[str] | None:
        value = carrier.get(key.encode())
        return None if value is None else [value.decode()]

    def keys(self, carrier: Message) -> list[str]:
        return [key.decode() for key in carrier]


class MessageSetter(Setter[Message]):
    """Writes a trace context into a mapping of bytes."""

    def set(self, carrier: Message, key: str, value: str) -> None:
        carrier[key.encode()] = value.encode()


message_getter = MessageGetter()
message_setter = MessageSetter()


def inject_context() -> dict[str, str] | None:
    """The current trace context to be stored with a task, or None if there is none."""
    if not trace.get_current_span().get_span_context().is_valid:
        return None
    carrier: MutableMapping[str, str] = {}
    propagate.inject(carrier)
    return dict(carrier)


def extract_context(stored: Mapping[str, str] | None) -> Any:
    return propagate.extract(dict(stored)) if stored else None
