"""The options of `docket worker`, and their form in the environment of a worker process.

A new option is a field of `WorkerOptions` here: the flag, the environment variable and the worker's
argument follow from its name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import typer

from docket.cli import docket_options
from docket.cli.docket_options import DEFAULT_DOCKET, DEFAULT_URL, DocketOptions, with_docket_options
from docket.cli.durations import duration, write_duration
from docket.cli.logs import Format, Level, default_format
from docket.cli.numbers import port, positive, size
from docket.instrumentation.http import ALL_INTERFACES
from docket.worker import options as worker

R = TypeVar("R")

STANDARD_TASKS = "docket.tasks:standard_tasks"
TUNING, OPERATING, DEVELOPING = "Fine tuning", "Operating", "Developing"

# Environment variables with names of their own. The
# others are DOCKET_WORKER_ and the option's name.
_VARIABLES = {
    **docket_options.ENVIRONMENT,
    "tasks": "DOCKET_TASKS",
    "logging_level": "DOCKET_LOGGING_LEVEL",
    "logging_format": "DOCKET_LOGGING_FORMAT",
    "fallback_task": "DOCKET_FALLBACK_TASK",
}


def variable(name: str) -> str:
    """The environment variable of an option."""
    return _VARIABLES.get(name, f"DOCKET_WORKER_{name.upper()}")


@dataclass(frozen=True)
class Flag:
    """An option on the command line. `given_as` is its type and default
    there, if they differ from the type and default of the field."""

    help: str
    panel: str | None = None
    is_switch: bool = False
    given_as: tuple[Any, Any] | None = None
    more: dict[str, Any] = field(default_factory=dict[str, Any])

    def parameter(self, name: str, kind: Any, default: Any) -> inspect.Parameter:
        """The parameter of a command, as typer reads it."""
        kind, default = (kind, default) if self.given_as is None else self.given_as
        flag = name.replace("_", "-")
        option: Any = typer.Option(
            f"--{flag}/--no-{flag}" if self.is_switch else f"--{flag}",
            envvar=variable(name),
            help=self.help,
            rich_help_panel=self.panel,
            **self.more,
        )
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
        )


def flag(help: str, panel: str | None = None, given_as: tuple[Any, Any] | None = None, **more: Any) -> Flag:
    return Flag(help, panel, given_as=given_as, more=more)


def switch(help: str, panel: str, **more: Any) -> Flag:
    return Flag(help, panel, is_switch=True, more=more)


def _duration(help: str, default: str) -> Flag:
    return flag(help, TUNING, parser=duration, metavar="DURATION", show_default=default)


def number(help: str, panel: str | None = None) -> Flag:
    return flag(help, panel, parser=positive, metavar="NUMBER")


def _port(help: str) -> Flag:
    return flag(help, OPERATING, parser=port, metavar="PORT")


def _host(help: str) -> Flag:
    return flag(help, OPERATING, metavar="HOST")


def _path(help: str, panel: str | None = None, given_as: tuple[Any, Any] | None = None) -> Flag:
    return flag(help, panel, given_as, metavar="MODULE:NAME")


_DEFAULT = worker.WorkerOptions()


@dataclass(frozen=True)
class WorkerOptions(DocketOptions):
    """The options of one worker process."""

    docket: str | None = DEFAULT_DOCKET
    url: str | None = DEFAULT_URL
    tasks: Annotated[
        tuple[str, ...],
        _path(
            "The tasks: an iterable of functions in a module. May be repeated.", given_as=(list[str], [STANDARD_TASKS])
        ),
    ] = (STANDARD_TASKS,)
    name: Annotated[str | None, flag("The worker's name.", metavar="NAME", show_default="host#pid")] = None
    concurrency: Annotated[int, number("Run at most this many tasks at a time.")] = _DEFAULT.concurrency
    threads: Annotated[
        int | None,
        flag(
            "Run plain functions (not async) in at most this many threads.",
            parser=positive,
            metavar="NUMBER",
            show_default="as --concurrency, up to 100",
        ),
    ] = None
    cpu_processes: Annotated[
        int | None,
        flag(
            "Run functions that declare Process in at most this many child processes.",
            parser=positive,
            metavar="NUMBER",
            show_default="the number of processors",
        ),
    ] = None
    until_finished: Annotated[bool, flag("Exit when no task is left, scheduled tasks included.")] = False
    logging_level: Annotated[Level, flag("Log messages of this level and above.", OPERATING, case_sensitive=False)] = (
        Level.INFO
    )
    logging_format: Annotated[
        Format,
        flag(
            "The format of the log.",
            OPERATING,
            (Format | None, None),
            case_sensitive=False,
            show_default="rich on a terminal, else plain",
        ),
    ] = Format.PLAIN
    healthcheck_port: Annotated[
        int | None, _port("Serve a health check here: 200 while the worker takes work, else 503.")
    ] = None
    healthcheck_host: Annotated[str, _host("The address for --healthcheck-port; 127.0.0.1 for this machine only.")] = (
        ALL_INTERFACES
    )
    metrics_port: Annotated[
        int | None, _port("Serve Prometheus metrics here. With --processes, each process uses the next port.")
    ] = None
    metrics_host: Annotated[str, _host("The address for --metrics-port; 127.0.0.1 for this machine only.")] = (
        ALL_INTERFACES
    )
    enable_internal_instrumentation: Annotated[
        bool, switch("Also trace docket's own requests to the server.", OPERATING)
    ] = _DEFAULT.enable_internal_instrumentation
    cwd: Annotated[bool, switch("Import modules from the current folder.", OPERATING)] = True
    max_tasks: Annotated[
        int | None,
        flag("Replace a worker process that has run this many tasks.", OPERATING, parser=positive, metavar="NUMBER"),
    ] = None
    max_memory: Annotated[
        int | None,
        flag("Replace a worker process that holds more memory, as in 2GiB.", OPERATING, parser=size, metavar="SIZE"),
    ] = None
    banner: Annotated[bool, switch("Log the docket, the server and the worker at the start.", OPERATING)] = True
    redelivery_timeout: Annotated[
        timedelta, _duration("Give the tasks of a silent worker to other workers after this long.", "5m")
    ] = _DEFAULT.redelivery_timeout
    reconnection_delay: Annotated[
        timedelta, _duration("The longest pause between attempts to reconnect to the server.", "5s")
    ] = _DEFAULT.reconnection_delay
    grace_period: Annotated[
        timedelta, _duration("On shutdown, let running tasks finish for this long, then requeue them.", "5m")
    ] = _DEFAULT.grace_period
    wait: Annotated[
        timedelta, _duration("At the start, wait this long for the server, then exit with code 1.", "30s")
    ] = timedelta(seconds=30)
    schedule_automatic_tasks: Annotated[
        bool, switch("Schedule tasks that start by themselves (Perpetual, Cron).", TUNING)
    ] = _DEFAULT.schedule_automatic_tasks
    fallback_task: Annotated[
        str | None, _path("The function that runs tasks whose own function is unknown.", TUNING)
    ] = None
    dependencies: Annotated[str | None, _path("Dependencies of every task: a mapping or a sequence.", TUNING)] = None
    uvloop: Annotated[bool | None, switch("Use uvloop.", TUNING, show_default="on if installed")] = None
    # docket does not poll, so the next two options have no effect.
    # They are accepted so that command lines for pydocket work.
    minimum_check_interval: Annotated[
        timedelta, _duration("Accepted for compatibility, without effect: docket does not poll.", "250ms")
    ] = _DEFAULT.minimum_check_interval
    scheduling_resolution: Annotated[
        timedelta, _duration("Accepted for compatibility, without effect: due tasks wake the worker.", "250ms")
    ] = _DEFAULT.scheduling_resolution
    # The number of worker processes, this one included.
    all_processes: Annotated[int, flag("The number of worker processes.", parser=positive, hidden=True)] = 1

    def environment(self) -> dict[str, str]:
        """The options as environment variables for a new worker process.
        Its command line would show the password to other users."""
        return {
            variable(field.name): _as_text(value)
            for field in fields(self)
            if (value := getattr(self, field.name)) is not None
        }

    @property
    def recycles(self) -> bool:
        """Whether worker processes are replaced, so that they need a supervisor."""
        return self.max_tasks is not None or self.max_memory is not None

    def changed(self, **changes: Any) -> WorkerOptions:
        return replace(self, **changes)


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(cast("tuple[str, ...]", value))
    if isinstance(value, timedelta):
        return write_duration(value)
    return str(value.value if isinstance(value, Enum) else value)


def with_worker_options(command: Callable[..., R]) -> Callable[..., R]:
    """Adds the options of a worker and of its docket to a command. The command receives them as the
    WorkerOptions `options`. Its own parameters are annotated with a `Flag` too."""
    of_the_worker = _parameters(WorkerOptions, [f.name for f in fields(WorkerOptions) if f.name not in _OF_THE_DOCKET])

    @functools.wraps(command)
    def run(docket: DocketOptions, **arguments: Any) -> R:
        given = {parameter.name: arguments.pop(parameter.name) for parameter in of_the_worker}
        given |= {"tasks": tuple(given["tasks"]), "logging_format": given["logging_format"] or default_format()}
        return command(options=WorkerOptions(**vars(docket), **given), **arguments)

    of_the_command = _parameters(command, [name for name in inspect.signature(command).parameters if name != "options"])
    docket = inspect.Parameter("docket", inspect.Parameter.KEYWORD_ONLY, annotation=DocketOptions)
    parameters = [docket, *of_the_worker, *of_the_command]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_docket_options(run)


_OF_THE_DOCKET = frozenset(f.name for f in fields(DocketOptions))


def _parameters(owner: Callable[..., Any], names: list[str]) -> list[inspect.Parameter]:
    hints, declared = get_type_hints(owner, include_extras=True), inspect.signature(owner).parameters
    return [
        hints[name].__metadata__[0].parameter(name, hints[name].__origin__, declared[name].default) for name in names
    ]
