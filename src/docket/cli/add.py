"""`docket add`"""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from docket.cli.added import add_task, show_added
from docket.cli.connect import opened, run
from docket.cli.docket_options import on_docket
from docket.cli.failures import FAILED, WrongUsage
from docket.cli.json_arguments import Arguments, read_arguments
from docket.cli.output import printable
from docket.cli.support.flags import Json, NewKey, duration, tasks_option
from docket.cli.task_modules import check_tasks, load
from docket.docket import Docket
from docket.errors import Unserializable
from docket.execution import Disposition, Execution, TaskFunction
from docket.execution.functions import unregistered_function
from docket.registry import did_you_mean, name_of

app: typer.Typer = typer.Typer(add_completion=False)

Function = Annotated[
    str,
    typer.Argument(metavar="MODULE:FUNCTION|NAME", help="The task function, or the name under which workers know it."),
]
Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARGUMENT]...", help="JSON, for example 5 or '\"text\"', or name=JSON for a keyword."),
]
Tasks = Annotated[
    list[str] | None,
    tasks_option("Where the function of a NAME is: an iterable of functions in a module. May be repeated."),
]
In = Annotated[
    timedelta | None,
    typer.Option(
        "--in",
        parser=duration,
        envvar="DOCKET_ADD_IN",
        metavar="DURATION",
        help="Run the task after this long.",
        show_default=False,
    ),
]


def _moment(text: str | datetime) -> datetime:
    if isinstance(text, datetime):
        return text
    try:
        moment = datetime.fromisoformat(text)
        # A time without a zone is local; the first and the last days have none in UTC.
        moment.astimezone(UTC)
        return moment
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is not a time: write 2026-01-31T09:00, with Z or +01:00 for another zone than the local one"
        ) from None


At = Annotated[
    datetime | None,
    typer.Option(
        "--at",
        parser=_moment,
        envvar="DOCKET_ADD_AT",
        metavar="TIME",
        help="Run the task at this time (ISO 8601).",
        show_default=False,
    ),
]


@app.command(context_settings={"ignore_unknown_options": True})
@on_docket
def add(
    docket: Docket,
    function: Function,
    arguments: Texts = None,
    key: NewKey = None,
    in_: In = None,
    at: At = None,
    tasks: Tasks = None,
    json: Json = False,
) -> int:
    """Add a task.

    Arguments are JSON; where the code of the function is here, they are checked against its
    signature and read by its annotations. A NAME needs --tasks or --app, or a docket with the JSON
    codec, where workers check the arguments. If the key has an unfinished task, nothing changes.
    The exit code is 1 if a strike blocks the task.

    Examples: docket add shop.tasks:ship '"order-7"' weight=2.5 --in 10m; docket add ship
    '"order-7"' --tasks shop.tasks:tasks --key ship-7
    """
    if in_ is not None and at is not None:
        raise WrongUsage("--in and --at: give one of them")
    check_tasks(docket, tasks or (), None)
    read = read_arguments(arguments or ())
    name, found = _find(docket, function)
    execution, workers = run(_add(docket, name, found, read, in_ if in_ is not None else at, key))
    show_added(docket.name, name, execution, json)
    if not workers and execution.disposition is Disposition.SCHEDULED:
        typer.echo(printable(f"No live worker knows {name!r}: the task waits for one that does"), err=True)
    return FAILED if execution.disposition is Disposition.STRUCK else 0


def _find(docket: Docket, function: str) -> tuple[str, TaskFunction | None]:
    """The name of the task and its function, or None if only workers have its code. Raises
    WrongUsage."""
    if ":" in function and function not in docket.tasks:
        found = load("MODULE:FUNCTION", function)
        try:
            with warnings.catch_warnings():
                # The function that was named is the one that is meant.
                warnings.simplefilter("ignore", UserWarning)
                docket.register(found)
        except (TypeError, ValueError) as error:
            raise WrongUsage(f"{function}: {error}") from None
        return name_of(found), found
    found = docket.tasks.get(function)
    if found is None and docket.payloads.codec.name != "json":
        raise WrongUsage(
            f"no task is registered as {function!r}{did_you_mean(function, docket.tasks)}: name its code with --tasks or "
            "--app, or write MODULE:FUNCTION; without the code, only a docket with the JSON codec can add it (--codec json)"
        )
    return function, found


async def _add(
    docket: Docket,
    name: str,
    function: TaskFunction | None,
    arguments: Arguments,
    when: datetime | timedelta | None,
    key: str | None,
) -> tuple[Execution, bool]:
    """The task, and False if neither this process nor a live worker knows its function."""
    if function is None:
        args, kwargs = arguments.values()
        try:
            docket.register(unregistered_function(name), names=[name])
        except ValueError as error:
            raise WrongUsage(str(error)) from None
    else:
        args, kwargs = arguments.typed_values(function)
    async with opened(docket, must_exist=False):
        if isinstance(when, timedelta):
            try:
                when = await docket.ledger.now() + when
            except OverflowError:
                raise WrongUsage("--in: this is later than the last day of the calendar") from None
        try:
            execution = await add_task(docket, name, when, key, *args, **kwargs)
        except (TypeError, Unserializable) as error:
            raise WrongUsage(str(error)) from None
        return execution, function is not None or bool(await docket.task_workers(name))
