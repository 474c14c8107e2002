"""`docket tasks ls|trace|fail|sleep`"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import typer

from docket.cli.support.added import add_task, show_added
from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.flags import Json, NewKey, duration, tasks_option
from docket.cli.support.output import write_json, write_table
from docket.cli.support.task_modules import check_tasks, describe_task
from docket.docket import Docket
from docket.execution import Execution

app: typer.Typer = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List the tasks that a worker would know, or schedule a built-in task.",
)

Tasks = Annotated[list[str] | None, tasks_option("The tasks: an iterable of functions in a module. May be repeated.")]
Message = Annotated[str, typer.Argument(help="The message.")]
Delay = Annotated[
    timedelta,
    typer.Option(
        "--delay",
        parser=duration,
        envvar="DOCKET_TASK_DELAY",
        metavar="DURATION",
        show_default="0s",
        help="Run the task after this delay.",
    ),
]


@app.command("ls")
@on_docket
def ls(docket: Docket, tasks: Tasks = None, json: Json = False) -> None:
    """List the tasks that a worker with these options would know: name, function, source.

    The command does not connect to the server.
    """
    check_tasks(docket, tasks or (), None)
    found = [describe_task(name, function) for name, function in docket.tasks.items()]
    if json:
        write_json([asdict(task) for task in found])
    else:
        write_table("", ("Name", "Function", "Source"), [(task.name, task.function, task.source) for task in found])


@app.command()
@on_docket
def trace(
    docket: Docket,
    message: Message = "Howdy!",
    delay: Delay = timedelta(0),
    key: NewKey = None,
    json: Json = False,
) -> None:
    """Schedule a task that logs a message."""
    _schedule("trace", message, docket, delay, key, json)


@app.command()
@on_docket
def fail(
    docket: Docket,
    message: Message = "Howdy!",
    delay: Delay = timedelta(0),
    key: NewKey = None,
    json: Json = False,
) -> None:
    """Schedule a task that fails."""
    _schedule("fail", message, docket, delay, key, json)


@app.command()
@on_docket
def sleep(
    docket: Docket,
    seconds: Annotated[
        float, typer.Argument(parser=lambda value: _seconds(value), metavar="SECONDS", help="How long to sleep.")
    ] = 1,
    delay: Delay = timedelta(0),
    key: NewKey = None,
    json: Json = False,
) -> None:
    """Schedule a task that sleeps for some time."""
    _schedule("sleep", seconds, docket, delay, key, json)


def _seconds(value: str | float) -> float:
    return duration(value).total_seconds() if isinstance(value, str) else value


def _schedule(task: str, argument: Any, docket: Docket, delay: timedelta, key: str | None, as_json: bool) -> None:
    show_added(docket.name, task, run(_add(task, argument, docket, delay, key)), as_json)


async def _add(task: str, argument: Any, docket: Docket, delay: timedelta, key: str | None) -> Execution:
    async with opened(docket, must_exist=False):
        return await add_task(docket, task, await docket.ledger.now() + delay if delay else None, key, argument)
