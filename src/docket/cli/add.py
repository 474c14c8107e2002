"""`docket add`"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NoReturn, get_type_hints

import typer

from docket.cli.support.added import add_task, show_added
from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.failures import FAILED, CommandFailed, WrongUsage
from docket.cli.support.flags import Json, NewKey, duration, tasks_option
from docket.cli.support.output import printable
from docket.cli.support.task_modules import check_tasks, load
from docket.codec.json_codec import JsonCodec
from docket.docket import Docket
from docket.errors import MissingPackage, Undecodable, Unserializable
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


_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PLAIN = (bool, int, float, str, list, dict, None, type(None), Any, object, inspect.Parameter.empty)


@dataclass
class Arguments:
    """The arguments as JSON texts."""

    positional: list[str] = field(default_factory=list[str])
    named: dict[str, str] = field(default_factory=dict[str, str])

    def values(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values, as JSON has them."""
        return tuple(map(json.loads, self.positional)), {name: json.loads(text) for name, text in self.named.items()}

    def typed_values(self, function: TaskFunction) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values as the annotations of the function want them. Raises WrongUsage if one of them
        does not fit, and CommandFailed if a package is missing that reads them."""
        try:
            codec = JsonCodec()
        except MissingPackage:
            return self._plain_values(function)
        named = ",".join(f"{json.dumps(name)}:{text}" for name, text in self.named.items())
        body = f"[[{','.join(self.positional)}],{{{named}}}]"
        try:
            return codec.decode_call(function, body.encode())
        except Undecodable as error:
            raise WrongUsage(str(error)) from None

    def _plain_values(self, function: TaskFunction) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            hints = get_type_hints(function)
        except Exception:
            hints = {}
        parameters = list(inspect.signature(function).parameters)
        for name in (*parameters[: len(self.positional)], *self.named):
            if hints.get(name, Any) not in _PLAIN:
                raise CommandFailed(
                    f"argument {name!r}: reading its type from JSON needs the package msgspec: pip install 'docket[json]'"
                )
        return self.values()


def read_arguments(texts: Sequence[str]) -> Arguments:
    """Each text is a JSON value, or `name=` and a JSON value. Raises WrongUsage."""
    arguments = Arguments()
    for text in texts:
        match = _KEYWORD.fullmatch(text)
        name, value = (match[1], match[2]) if match else ("", text)
        if text.startswith("--"):
            raise WrongUsage(f"no such option: {text} (see docket add --help)")
        _check(text, name, value)
        if not name:
            arguments.positional.append(value)
        elif name in arguments.named:
            raise WrongUsage(f"the argument {name!r} is there twice")
        else:
            arguments.named[name] = value
    return arguments


def _check(text: str, name: str, value: str) -> None:
    try:
        json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        quoted = json.dumps(value, ensure_ascii=False)
        hint = f"'{name}={quoted}'" if name else f"'{quoted}'"
        raise WrongUsage(f"{text!r} is not JSON; if it is text, quote it twice: {hint}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
