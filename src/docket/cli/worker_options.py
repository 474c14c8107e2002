"""What `docket worker` may be told, and how a supervisor tells it to the processes it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, cast

import typer

from docket.cli import docket_options
from docket.cli.docket_options import DEFAULT_DOCKET, DEFAULT_URL, DocketOptions
from docket.cli.durations import duration, write_duration
from docket.cli.logs import Format, Level
from docket.cli.numbers import port, positive, whole_number

STANDARD_TASKS = "docket.tasks:standard_tasks"


@dataclass(frozen=True)
class WorkerOptions(DocketOptions):
    """The options of one worker process. Each field has an environment variable of its own."""

    docket: str | None = DEFAULT_DOCKET
    url: str | None = DEFAULT_URL
    tasks: tuple[str, ...] = (STANDARD_TASKS,)
    name: str | None = None
    logging_level: Level = Level.INFO
    logging_format: Format = Format.PLAIN
    concurrency: int = 10
    redelivery_timeout: timedelta = timedelta(minutes=5)
    reconnection_delay: timedelta = timedelta(seconds=5)
    minimum_check_interval: timedelta = timedelta(milliseconds=250)
    scheduling_resolution: timedelta = timedelta(milliseconds=250)
    grace_period: timedelta = timedelta(minutes=5)
    wait: timedelta = timedelta(seconds=30)
    schedule_automatic_tasks: bool = True
    until_finished: bool = False
    healthcheck_port: int | None = None
    metrics_port: int | None = None
    fallback_task: str | None = None
    dependencies: str | None = None
    enable_internal_instrumentation: bool = False
    uvloop: bool | None = None
    banner: bool = True
    # How many worker processes there are, this one included.
    processes_beside: int = 1

    @classmethod
    def of(cls, given: Mapping[str, Any], **changes: Any) -> WorkerOptions:
        """The options among the given values."""
        return cls(**{field.name: given[field.name] for field in fields(cls)} | changes)

    def environment(self) -> dict[str, str]:
        """The same options for a process to be started. Not on its command line: that would show the password."""
        return {
            ENVIRONMENT[field.name]: _as_text(value)
            for field in fields(self)
            if (value := getattr(self, field.name)) is not None
        }

    def changed(self, **changes: Any) -> WorkerOptions:
        return replace(self, **changes)


ENVIRONMENT = {
    **docket_options.ENVIRONMENT,
    "tasks": "DOCKET_TASKS",
    "name": "DOCKET_WORKER_NAME",
    "logging_level": "DOCKET_LOGGING_LEVEL",
    "logging_format": "DOCKET_LOGGING_FORMAT",
    "concurrency": "DOCKET_WORKER_CONCURRENCY",
    "redelivery_timeout": "DOCKET_WORKER_REDELIVERY_TIMEOUT",
    "reconnection_delay": "DOCKET_WORKER_RECONNECTION_DELAY",
    "minimum_check_interval": "DOCKET_WORKER_MINIMUM_CHECK_INTERVAL",
    "scheduling_resolution": "DOCKET_WORKER_SCHEDULING_RESOLUTION",
    "grace_period": "DOCKET_WORKER_GRACE_PERIOD",
    "wait": "DOCKET_WORKER_WAIT",
    "schedule_automatic_tasks": "DOCKET_WORKER_SCHEDULE_AUTOMATIC_TASKS",
    "until_finished": "DOCKET_WORKER_UNTIL_FINISHED",
    "healthcheck_port": "DOCKET_WORKER_HEALTHCHECK_PORT",
    "metrics_port": "DOCKET_WORKER_METRICS_PORT",
    "fallback_task": "DOCKET_FALLBACK_TASK",
    "dependencies": "DOCKET_WORKER_DEPENDENCIES",
    "enable_internal_instrumentation": "DOCKET_WORKER_ENABLE_INTERNAL_INSTRUMENTATION",
    "uvloop": "DOCKET_WORKER_UVLOOP",
    "banner": "DOCKET_WORKER_BANNER",
    "processes": "DOCKET_WORKER_PROCESSES",
    "processes_beside": "DOCKET_WORKER_PROCESSES_BESIDE",
    "reload": "DOCKET_WORKER_RELOAD",
    "report_to": "DOCKET_WORKER_REPORT_TO",
    "message_batch": "DOCKET_WORKER_MESSAGE_BATCH",
}


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(cast("tuple[str, ...]", value))
    if isinstance(value, timedelta):
        return write_duration(value)
    return str(value.value if isinstance(value, Enum) else value)


TUNING, OPERATING, DEVELOPING = "Fine tuning", "Operating", "Developing"


def _option(name: str, help: str, panel: str | None = None, flags: str | None = None, **more: Any) -> Any:
    flags = flags or f"--{name.replace('_', '-')}"
    return typer.Option(flags, envvar=ENVIRONMENT[name], help=help, rich_help_panel=panel, **more)


def _switch(name: str, help: str, panel: str, **more: Any) -> Any:
    flag = name.replace("_", "-")
    return _option(name, help, panel, f"--{flag}/--no-{flag}", **more)


def _duration(name: str, help: str, default: str) -> Any:
    return _option(name, help, TUNING, parser=duration, metavar="DURATION", show_default=default)


def _number(name: str, help: str, panel: str | None = None) -> Any:
    return _option(name, help, panel, parser=positive, metavar="NUMBER")


def _port(name: str, help: str) -> Any:
    return _option(name, help, OPERATING, parser=port, metavar="PORT")


def _place(name: str, help: str, panel: str | None = None) -> Any:
    return _option(name, help, panel, metavar="MODULE:NAME")


Tasks = Annotated[list[str], _place("tasks", "Where the tasks are: an iterable of functions. May be repeated.")]
Name = Annotated[str | None, _option("name", "The worker's name; by default host#pid.", metavar="NAME")]
Concurrency = Annotated[int, _number("concurrency", "How many tasks run at a time.")]
Processes = Annotated[int, _number("processes", "Run this many processes, and restart those that die.")]
UntilFinished = Annotated[bool, _option("until_finished", "Stop when nothing is left to do, future work included.")]

LoggingLevel = Annotated[
    Level, _option("logging_level", "Log this and what is worse.", OPERATING, case_sensitive=False)
]
LoggingFormat = Annotated[
    Format | None,
    _option(
        "logging_format",
        "How log lines look.",
        OPERATING,
        case_sensitive=False,
        show_default="rich on a terminal, else plain",
    ),
]
HealthcheckPort = Annotated[int | None, _port("healthcheck_port", "Answer here: 200 while work is taken, else 503.")]
MetricsPort = Annotated[
    int | None, _port("metrics_port", "Serve metrics for Prometheus here; further processes take the ports after it.")
]
EnableInternalInstrumentation = Annotated[
    bool, _switch("enable_internal_instrumentation", "Trace docket's own traffic with the server too.", OPERATING)
]
Banner = Annotated[bool, _switch("banner", "Say at the start what runs here.", OPERATING)]

RedeliveryTimeout = Annotated[
    timedelta, _duration("redelivery_timeout", "After this long the tasks of a silent worker go to others.", "5m")
]
ReconnectionDelay = Annotated[
    timedelta, _duration("reconnection_delay", "The longest pause between attempts to reach a lost server.", "5s")
]
GracePeriod = Annotated[
    timedelta,
    _duration("grace_period", "How long running tasks may take to finish on shutdown; the rest is handed back.", "5m"),
]
Wait = Annotated[
    timedelta, _duration("wait", "How long to wait at the start for a server that is not there; then exit 1.", "30s")
]
# Nothing is polled, so the next two have nothing to tune; command lines that have them go on working.
MinimumCheckInterval = Annotated[
    timedelta, _duration("minimum_check_interval", "Accepted and not needed: nothing is polled.", "250ms")
]
SchedulingResolution = Annotated[
    timedelta, _duration("scheduling_resolution", "Accepted and not needed: due tasks wake the worker.", "250ms")
]
ScheduleAutomaticTasks = Annotated[
    bool, _switch("schedule_automatic_tasks", "Schedule what is to run by itself (Perpetual, Cron).", TUNING)
]
FallbackTask = Annotated[str | None, _place("fallback_task", "The function for tasks that no worker knows.", TUNING)]
Dependencies = Annotated[
    str | None, _place("dependencies", "Dependencies to wrap round every task: a mapping or a sequence.", TUNING)
]
Uvloop = Annotated[bool | None, _switch("uvloop", "Use uvloop.", TUNING, show_default="on when installed")]

Reload = Annotated[bool, _switch("reload", "Restart when a .py file below the current folder changes.", DEVELOPING)]

MessageBatch = Annotated[int, _option("message_batch", "Accepted and not needed.", parser=positive, hidden=True)]
ProcessesBeside = Annotated[
    int, _option("processes_beside", "How many processes there are.", parser=positive, hidden=True)
]
ReportTo = Annotated[int | None, _option("report_to", "A pipe to a supervisor.", parser=whole_number(0), hidden=True)]
