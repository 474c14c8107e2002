"""All metrics of docket. Their values go to OpenTelemetry,
and to Prometheus if the metrics port is open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

meter: metrics.Meter = metrics.get_meter("docket")

Attributes = Mapping[str, str]
Record = Callable[[Any, Attributes], None]

_all: list[_Instrument] = []
# Whether an instrument uses a function other than OpenTelemetry's
# own: that of a mirror, or one that a test has set.
_is_rewired = False
# The module that has the meter provider (see is_measured).
_providers: Any = getattr(metrics, "_internal", None)


class _Instrument:
    """A metric. `mirror`, if set, also gets every value."""

    kind = ""
    _telemetry: Record

    def __init__(self, name: str, description: str, unit: str = "1") -> None:
        self.name = name
        self.description = description
        self.unit = unit
        self._mirror: Record | None = None
        _all.append(self)

    def __setattr__(self, name: str, value: Any) -> None:
        global _is_rewired
        if name in ("add", "record") and value is not self._telemetry:
            _is_rewired = True
        super().__setattr__(name, value)

    @property
    def mirror(self) -> Record | None:
        return self._mirror

    @mirror.setter
    def mirror(self, mirror: Record | None) -> None:
        self._mirror = mirror
        self._connect()

    def _connect(self) -> None:
        """Called when the mirror has changed."""


def _both(first: Record, second: Record | None) -> Record:
    """A function that records with both. Without a mirror it is OpenTelemetry's own function,
    because every run calls several of these."""
    if second is None:
        return first

    def record(amount: Any, attributes: Attributes) -> None:
        first(amount, attributes)
        second(amount, attributes)

    return record


class Counter(_Instrument):
    """Counts events."""

    kind = "counter"
    add: Record

    def __init__(self, name: str, description: str, unit: str = "1") -> None:
        super().__init__(name, description, unit)
        self._telemetry = meter.create_counter(name, unit, description).add
        self._connect()

    def _connect(self) -> None:
        self.add = _both(self._telemetry, self._mirror)


class UpDownCounter(_Instrument):
    """Counts things that begin and end."""

    kind = "gauge"
    add: Record

    def __init__(self, name: str, description: str, unit: str = "1") -> None:
        super().__init__(name, description, unit)
        self._telemetry = meter.create_up_down_counter(name, unit, description).add
        self._connect()

    def _connect(self) -> None:
        self.add = _both(self._telemetry, self._mirror)


class DurationHistogram(_Instrument):
    """Records a distribution of values."""

    kind = "histogram"
    record: Record

    def __init__(self, name: str, description: str, unit: str) -> None:
        super().__init__(name, description, unit)
        self._telemetry = meter.create_histogram(name, unit, description).record
        self._connect()

    def _connect(self) -> None:
        self.record = _both(self._telemetry, self._mirror)


class Gauge(_Instrument):
    """Shows the last value that was set, until `clear` removes it."""

    kind = "gauge"

    def __init__(self, name: str, description: str, unit: str = "1") -> None:
        super().__init__(name, description, unit)
        self._values: dict[tuple[tuple[str, str], ...], float] = {}
        self.forget: Callable[[Attributes], None] | None = None
        meter.create_observable_gauge(name, [self._observe], unit, description)

    def set(self, amount: float, attributes: Attributes) -> None:
        self._values[tuple(sorted(attributes.items()))] = amount
        if self._mirror is not None:
            self._mirror(amount, attributes)

    def clear(self, attributes: Attributes) -> None:
        self._values.pop(tuple(sorted(attributes.items())), None)
        if self.forget is not None:
            self.forget(attributes)

    def _observe(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, dict(labels)) for labels, value in list(self._values.items())]


TASKS_ADDED = Counter("docket_tasks_added", "Tasks added")
TASKS_REPLACED = Counter("docket_tasks_replaced", "Tasks scheduled with replace")
TASKS_SCHEDULED = Counter("docket_tasks_scheduled", "Tasks scheduled, by add or replace")
TASKS_CANCELLED = Counter(
    "docket_tasks_cancelled", "Tasks that ended as cancelled: on request, struck, dropped or cleared"
)
TASKS_STARTED = Counter("docket_tasks_started", "Runs started")
TASKS_REDELIVERED = Counter("docket_tasks_redelivered", "Runs of tasks whose earlier run was lost or requeued")
TASKS_STRICKEN = Counter("docket_tasks_stricken", "Tasks blocked by a strike")
TASKS_SUPERSEDED = Counter("docket_tasks_superseded", "Runs that no longer counted when they ended")
TASKS_COMPLETED = Counter("docket_tasks_completed", "Runs that ended, in success or failure")
TASKS_FAILED = Counter("docket_tasks_failed", "Runs that failed")
TASKS_SUCCEEDED = Counter("docket_tasks_succeeded", "Runs that succeeded")
TASKS_RETRIED = Counter("docket_tasks_retried", "Failed runs that are followed by a retry")
TASKS_PERPETUATED = Counter("docket_tasks_perpetuated", "Runs that are followed by the next run of a perpetual task")
PAYLOADS_REFUSED = Counter(
    "docket_payloads_refused", "Payloads that were not decoded: not signed, forged, or of a codec that is not accepted"
)
TASK_DURATION = DurationHistogram("docket_task_duration", "Duration of runs", "s")
TASK_PUNCTUALITY = DurationHistogram("docket_task_punctuality", "Delay between due time and start of a run", "s")
TASKS_RUNNING = UpDownCounter("docket_tasks_running", "Runs in progress in this worker")
THREADS_ABANDONED = UpDownCounter(
    "docket_threads_abandoned", "Threads of plain functions that go on although their run was given up"
)
PROCESSES_LOST = Counter("docket_processes_lost", "Child processes that ended while they ran a task")
REDIS_DISRUPTIONS = Counter("docket_redis_disruptions", "Steps of the worker that failed because of the server")
STRIKES_IN_EFFECT = UpDownCounter("docket_strikes_in_effect", "Strikes in effect")
QUEUE_DEPTH = Gauge("docket_queue_depth", "Tasks that are ready and wait for a worker or a limit")
SCHEDULE_DEPTH = Gauge("docket_schedule_depth", "Tasks that wait for their due time")
FLEET_RUNNING = Gauge("docket_fleet_running", "Running tasks of all workers")
OLDEST_WAITING_AGE = Gauge("docket_oldest_waiting_age", "Waiting time of the oldest ready task", "s")
DEAD_LETTERS = Gauge("docket_dead_letters", "Tasks that failed for good and are kept")
DEAD_LETTERS_DROPPED = Gauge(
    "docket_dead_letters_dropped", "Tasks that failed for good and did not fit, since the docket exists"
)
UNKNOWN_FUNCTION_TASKS = Gauge(
    "docket_unknown_function_tasks", "Tasks that wait for a worker that knows their function"
)
HELD_TASKS = Gauge("docket_held_tasks", "Tasks that a pause holds")
SLOTS_IN_USE = Gauge("docket_slots_in_use", "Slots of concurrency limits in use")
CACHE_SIZE = Gauge("docket_cache_size", "Entries in docket's caches")


def instruments() -> list[Any]:
    return list(_all)


def is_measured() -> bool:
    """Whether any receiver gets the values of instruments. If not, runs skip all measurements. It
    is called for every task."""
    # Without a provider, OpenTelemetry's instruments do nothing. If a future release moves this
    # attribute, all instruments are called.
    try:
        return _is_rewired or _providers._METER_PROVIDER is not None
    except AttributeError:
        return True


def has_receiver() -> bool:
    """Whether values that are costly to read have a receiver:
    an SDK is configured, or the metrics port is open."""
    provider = metrics.get_meter_provider()
    return type(provider).__module__.partition(".")[2].startswith("sdk") or any(i.mirror is not None for i in _all)
