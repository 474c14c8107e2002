"""The options of `docket worker`, and their form in the environment of a worker process.

`Worker` declares its options in its signature: their flags and variables follow. Options of the
command alone are fields of `WorkerOptions` here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Annotated, Any, TypeVar

from docket.cli.support.docket_options import DocketOptions, with_docket_options
from docket.cli.support.flags import Flag
from docket.cli.support.logs import Format, Level
from docket.instrumentation.http import ALL_INTERFACES
from docket.model.options import NAMED_OBJECT, OPERATING, TUNING, Option, declared_options
from docket.worker import Worker

R = TypeVar("R")

STANDARD_TASKS = "docket.tasks:standard_tasks"


@dataclass(frozen=True)
class WorkerOptions:
    """The options of one worker process."""

    docket: DocketOptions = field(default_factory=DocketOptions)
    # The arguments of `Worker`.
    worker: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tasks: Annotated[
        tuple[str, ...],
        Option(
            "The tasks: an iterable of functions in a module. May be repeated.",
            metavar=NAMED_OBJECT,
            variables=("DOCKET_TASKS",),
        ),
    ] = (STANDARD_TASKS,)
    until_finished: Annotated[
        bool, Option("Exit when no task is left, scheduled tasks included.", flags=("--until-finished",))
    ] = False
    logging_level: Annotated[
        Level,
        Option("Log messages of this level and above.", variables=("DOCKET_LOGGING_LEVEL",), panel=OPERATING),
    ] = Level.INFO
    logging_format: Annotated[
        Format | None,
        Option(
            "The format of the log.",
            variables=("DOCKET_LOGGING_FORMAT",),
            panel=OPERATING,
            default="rich on a terminal, else plain",
        ),
    ] = None
    healthcheck_port: Annotated[
        int | None,
        Option(
            "Serve a health check here: 200 while the worker takes work, else 503.",
            metavar="PORT",
            panel=OPERATING,
            page="observability.md",
        ),
    ] = None
    healthcheck_host: Annotated[
        str,
        Option("The address for --healthcheck-port; 127.0.0.1 for this machine only.", metavar="HOST", panel=OPERATING),
    ] = ALL_INTERFACES
    metrics_port: Annotated[
        int | None,
        Option(
            "Serve Prometheus metrics here. With --processes, each process uses the next port.",
            metavar="PORT",
            panel=OPERATING,
            page="observability.md",
        ),
    ] = None
    metrics_host: Annotated[
        str,
        Option("The address for --metrics-port; 127.0.0.1 for this machine only.", metavar="HOST", panel=OPERATING),
    ] = ALL_INTERFACES
    cwd: Annotated[bool, Option("Import modules from the current folder.", panel=OPERATING)] = True
    max_tasks: Annotated[
        int | None,
        Option("Replace a worker process that has run this many tasks.", least=1, panel=OPERATING),
    ] = None
    max_memory: Annotated[
        int | None,
        Option("Replace a worker process that holds more memory, as in 2GiB.", metavar="SIZE", panel=OPERATING),
    ] = None
    banner: Annotated[bool, Option("Log the docket, the server and the worker at the start.", panel=OPERATING)] = True
    wait: Annotated[
        timedelta, Option("At the start, wait this long for the server, then exit with code 1.", panel=TUNING)
    ] = timedelta(seconds=30)
    uvloop: Annotated[bool | None, Option("Use uvloop.", panel=TUNING, default="on if installed")] = None
    # The number of worker processes, this one included.
    all_processes: Annotated[int, Option("The number of worker processes.", least=1, is_hidden=True)] = 1

    @property
    def name(self) -> str | None:
        return self.worker.get("name")

    @property
    def recycles(self) -> bool:
        """Whether worker processes are replaced, so that they need a supervisor."""
        return self.max_tasks is not None or self.max_memory is not None

    def named(self, name: str) -> WorkerOptions:
        return self.changed(worker={**self.worker, "name": name})

    def changed(self, **changes: Any) -> WorkerOptions:
        return replace(self, **changes)

    def environment(self) -> dict[str, str]:
        """The options as environment variables for a new worker process.
        Its command line would show the password to other users."""
        given = {**vars(self), **self.worker}
        return self.docket.environment() | {
            flag.variables[0]: flag.as_text(value)
            for flag in worker_flags()
            if (value := given.get(flag.declared.name)) is not None
        }


def worker_flags() -> list[Flag]:
    return [*_flags(WorkerOptions), *_flags(Worker)]


def with_worker_options(command: Callable[..., R]) -> Callable[..., R]:
    """Adds the options of a worker and of its docket to a command. The command receives them as the
    WorkerOptions `options`. It declares its own parameters with `Option` too."""
    of_the_process, of_the_worker = _flags(WorkerOptions), _flags(Worker)

    @functools.wraps(command)
    def run(docket: DocketOptions, **arguments: Any) -> R:
        worker, process = (
            {flag.declared.name: arguments.pop(flag.parameter_name) for flag in flags}
            for flags in (of_the_worker, of_the_process)
        )
        process["tasks"] = tuple(process["tasks"])
        return command(options=WorkerOptions(docket, worker, **process), **arguments)

    docket = inspect.Parameter("docket", inspect.Parameter.KEYWORD_ONLY, annotation=DocketOptions)
    options = [flag.parameter() for flag in (*of_the_process, *of_the_worker, *_flags(command))]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (docket, *options)}
    run.__signature__ = inspect.Signature([docket, *options])  # type: ignore[attr-defined]
    return with_docket_options(run)


def _flags(owner: Callable[..., Any]) -> list[Flag]:
    return [Flag(declared, "DOCKET_WORKER_") for declared in declared_options(owner).values()]
