"""`docket tasks trace|fail|sleep`"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from docket.cli.durations import duration
from docket.cli.opening import open_docket, run
from docket.cli.options import DEFAULT_DOCKET, DEFAULT_URL, DocketName, Json, Url
from docket.cli.output import write_json
from docket.execution import Disposition, Execution

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Schedule one of the built-in tasks.")

Message = Annotated[str, typer.Argument(help="The message.")]
Delay = Annotated[
    timedelta,
    typer.Option(
        "--delay",
        parser=duration,
        envvar="DOCKET_TASK_DELAY",
        metavar="DURATION",
        show_default="0s",
        help="How long to wait first.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option("--key", envvar="DOCKET_TASK_KEY", metavar="KEY", help="The key of the task; by default a fresh one."),
]


@app.command()
def trace(
    message: Message = "Howdy!",
    docket: DocketName = DEFAULT_DOCKET,
    url: Url = DEFAULT_URL,
    delay: Delay = timedelta(0),
    key: Key = None,
    json: Json = False,
) -> None:
    """Schedule a task that logs a message."""
    _schedule("trace", message, docket, url, delay, key, json)


@app.command()
def fail(
    message: Message = "Howdy!",
    docket: DocketName = DEFAULT_DOCKET,
    url: Url = DEFAULT_URL,
    delay: Delay = timedelta(0),
    key: Key = None,
    json: Json = False,
) -> None:
    """Schedule a task that fails."""
    _schedule("fail", message, docket, url, delay, key, json)


@app.command()
def sleep(
    seconds: Annotated[
        float, typer.Argument(parser=lambda value: _seconds(value), metavar="SECONDS", help="How long to sleep.")
    ] = 1,
    docket: DocketName = DEFAULT_DOCKET,
    url: Url = DEFAULT_URL,
    delay: Delay = timedelta(0),
    key: Key = None,
    json: Json = False,
) -> None:
    """Schedule a task that sleeps for a while."""
    _schedule("sleep", seconds, docket, url, delay, key, json)


def _seconds(value: str | float) -> float:
    return duration(value).total_seconds() if isinstance(value, str) else value


def _schedule(task: str, argument: Any, name: str, url: str, delay: timedelta, key: str | None, as_json: bool) -> None:
    execution = run(_add(task, argument, name, url, delay, key))
    if as_json:
        write_json({"docket": name, "task": task, "key": execution.key, "disposition": execution.disposition.value})
    elif execution.disposition is Disposition.SCHEDULED:
        typer.echo(f"Added {task} task {execution.key!r} to docket {name!r}")
    elif execution.disposition is Disposition.STRUCK:
        typer.echo(f"A strike on docket {name!r} blocks {task}: nothing was added")
    else:
        typer.echo(f"Docket {name!r} has a task {execution.key!r} already: nothing was added")


async def _add(task: str, argument: Any, name: str, url: str, delay: timedelta, key: str | None) -> Execution:
    async with open_docket(name, url, must_exist=False) as docket:
        return await docket.add(task, datetime.now(UTC) + delay if delay else None, key)(argument)
