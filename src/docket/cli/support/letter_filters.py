"""The options of commands that select dead letters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from docket.cli.support.failures import WrongUsage
from docket.docket import Docket
from docket.model.amounts import read_duration
from docket.model.typed_texts import TYPES, read_value

R = TypeVar("R")


def _option(name: str, metavar: str, help: str) -> Any:
    variable = f"DOCKET_DEAD_{name.upper().replace('-', '_')}"
    return Annotated[str | None, typer.Option(f"--{name}", envvar=variable, metavar=metavar, help=help)]


_OPTIONS: dict[str, Any] = {
    "function": _option("function", "NAME", "Letters of this task function."),
    "error": _option("error", "CLASS", "Letters with this class of error, with or without its module."),
    "text": _option("text", "TEXT", "Letters with this text in their error or traceback."),
    "key_prefix": _option("key-prefix", "TEXT", "Letters of tasks whose key begins like this."),
    "kind": _option("kind", "ID", "Letters of this kind, from `docket dead ls --kinds`."),
    "since": _option("since", "TIME", "Letters since this time: 2h (ago), or 2026-01-31T12:00."),
    "until": _option("until", "TIME", "Letters before this time."),
    "argument": _option(
        "argument",
        "NAME=VALUE",
        f"Letters with this value of a Logged parameter. VALUE is text, or TYPE:VALUE: {TYPES}.",
    ),
}


def with_filters(command: Callable[..., R]) -> Callable[..., R]:
    """Adds the options to a command, which receives the filter as `filter`."""
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)

    @functools.wraps(command)
    def run(*args: Any, **arguments: Any) -> R:
        given = {name: arguments.pop(name, None) for name in _OPTIONS}
        return command(*args, filter=read_filter(given), **arguments)

    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]
    own = [
        p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for p in signature.parameters.values()
        if p.name != "filter"
    ]
    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
    return run


def read_filter(given: dict[str, str | None]) -> dict[str, Any]:
    """The filter of the Python API. Raises WrongUsage."""
    found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name, value in found.items():
        if not value:
            raise WrongUsage(f"--{name.replace('_', '-')} is empty; leave it out")
    for name in ("since", "until"):
        if name in found:
            found[name] = _read_time(name, found[name])
    if "argument" in found:
        name, equals, value = found["argument"].partition("=")
        if not equals or not name:
            raise WrongUsage(f"--argument {found['argument']}: write NAME=VALUE, for example customer=int:7")
        try:
            found["argument"] = (name, read_value(value))
        except ValueError as error:
            raise WrongUsage(f"--argument {name}={value}: {error}") from None
    return found


async def at_server_time(docket: Docket, filter: dict[str, Any]) -> dict[str, Any]:
    """The filter with times in the place of durations. The server's clock says what an hour ago
    is: that of this machine may be wrong."""
    if not any(isinstance(value, timedelta) for value in filter.values()):
        return filter
    now = await docket.ledger.now()
    return {name: now - value if isinstance(value, timedelta) else value for name, value in filter.items()}


def _read_time(name: str, text: str) -> datetime | timedelta:
    """A time, or how long ago it is."""
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo is not None else found.astimezone()
    except (ValueError, OverflowError):
        pass
    try:
        length = read_duration(text)
        # Not every duration leads to a time that there is.
        _ = datetime.now() - length
        return length
    except (ValueError, OverflowError):
        raise WrongUsage(f"--{name} {text}: this is neither a time (2026-01-31T12:00) nor a duration (2h)") from None


def letter_id(text: str) -> int | None:
    """The id in `#17`; None for a key."""
    return int(text[1:]) if text.startswith("#") and text[1:].isdecimal() and text[1:].isascii() else None
