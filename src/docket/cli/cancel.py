"""`docket cancel`"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from docket.docket import Docket
from docket.ledger.ledger import Ledger
from docket.ledger.queries import Source, TaskQuery
from docket.storage.client.urls import hide_password

from .support.connect import opened, run
from .support.docket_options import on_docket
from .support.failures import FAILED, WrongUsage
from .support.flags import Json
from .support.output import printable, write_json
from .support.terminal import Yes, ask, is_at_terminal

app: typer.Typer = typer.Typer(add_completion=False)

NOT_FOUND, CANCELLED, ASKED = "not_found", "cancelled", "asked"
_ANSWERS = (NOT_FOUND, CANCELLED, ASKED)
_AT_ONCE = 100

Keys = Annotated[list[str] | None, typer.Argument(metavar="KEY...", help="The keys of the tasks.")]
Function = Annotated[
    str | None,
    typer.Option(
        "--function",
        envvar="DOCKET_CANCEL_FUNCTION",
        metavar="NAME",
        help="Cancel all unfinished tasks of this function, also running ones.",
    ),
]


@app.command()
@on_docket
def cancel(docket: Docket, keys: Keys = None, function: Function = None, yes: Yes = False, json: Json = False) -> int:
    """Cancel tasks by key, or all tasks of a function.

    A waiting task ends at once; the worker of a running task is asked to stop it. With --function
    the command asks first at a terminal; in a script it does not. An automatic task stays cancelled
    until a newer deploy starts. The exit code is 1 if one of the keys has no unfinished task.
    """
    if bool(keys) == (function is not None):
        raise WrongUsage("name the keys of tasks, or a function with --function (see docket cancel --help)")
    if function is not None:
        _show_function(docket, function, run(_cancel_function(docket, function, yes or json)), as_json=json)
        return 0
    answers = run(_cancel(docket, keys or []))
    if json:
        write_json({"docket": docket.name, "tasks": [{"key": key, "answer": answers[key]} for key in answers]})
    else:
        for key, answer in answers.items():
            typer.echo(printable(_in_words(docket.name, key, answer)))
    return FAILED if NOT_FOUND in answers.values() else 0


def _in_words(docket: str, key: str, answer: str) -> str:
    if answer == CANCELLED:
        return f"Cancelled task {key!r}"
    if answer == ASKED:
        return f"Task {key!r} is running: its worker was asked to cancel it"
    return f"Docket {docket!r} has no unfinished task {key!r}"


def _show_function(docket: Docket, function: str, cancels: FunctionCancels, *, as_json: bool) -> None:
    if as_json:
        counts = {"cancelled": cancels.cancelled, "asked": cancels.asked}
        write_json({"docket": docket.name, "function": function, **counts})
        return
    words = f"Cancelled {cancels.cancelled:,} waiting {'task' if cancels.cancelled == 1 else 'tasks'} of {function}"
    if cancels.asked:
        words += f"; the workers of {cancels.asked:,} running {'one' if cancels.asked == 1 else 'ones'} were asked"
    typer.echo(printable(f"{words} (docket {docket.name!r})"))


async def _cancel(docket: Docket, keys: Sequence[str]) -> dict[str, str]:
    answers: dict[str, str] = {}
    unique = list(dict.fromkeys(keys))
    async with opened(docket), docket.ledger.audit.change("cancel", ", ".join(unique)) as entry:
        for first in range(0, len(unique), _AT_ONCE):
            some = unique[first : first + _AT_ONCE]
            replies = await asyncio.gather(*(docket.ledger.tasks.cancel(key) for key in some))
            answers.update((key, _ANSWERS[reply]) for key, reply in zip(some, replies, strict=True))
        entry.count = len(answers) - list(answers.values()).count(NOT_FOUND)
    return answers


async def _cancel_function(docket: Docket, function: str, agreed: bool) -> FunctionCancels:
    async with opened(docket):
        if not agreed and is_at_terminal():
            found = (await docket.ledger.queries.count_by_function()).get(function)
            if found is None:
                return FunctionCancels()
            waiting = found.scheduled + found.queued
            question = f"Cancel {waiting:,} waiting and {found.running:,} running tasks of {function}"
            ask(printable(f"{question} of docket {docket.name!r} on {hide_password(docket.url)}?"))
        async with docket.ledger.audit.change("cancel", f"function={function}") as entry:
            found = await cancel_function(docket.ledger, function)
            entry.count = found.cancelled + found.asked
        return found


# Tasks move while they are cancelled: one that was running is retried, one that waited is claimed.
# The flag of a run that was asked to cancel also ends its retries, so few rounds are enough.
_ROUNDS = 5


@dataclass(slots=True)
class FunctionCancels:
    """How many waiting tasks were cancelled, and how many running ones were asked to cancel."""

    cancelled: int = 0
    asked: int = 0


async def cancel_function(ledger: Ledger, function: str) -> FunctionCancels:
    """Cancels the waiting tasks of a function, and asks the workers of the running ones. The chains
    of automatic tasks stay cancelled."""
    answer, asked = FunctionCancels(), set[str]()
    for _ in range(_ROUNDS):
        before = answer.cancelled, len(asked)
        answer.cancelled += await ledger.tasks.clear(function, ends_chains=True)
        async for page in ledger.queries.all(Source.RUNNING, TaskQuery(function=function)):
            found = [row.key for row in page if row.key not in asked]
            replies = await asyncio.gather(*(ledger.tasks.cancel(key, function) for key in found))
            answer.cancelled += replies.count(1)
            asked.update(key for key, reply in zip(found, replies, strict=True) if reply == 2)
        if before == (answer.cancelled, len(asked)):
            break
    answer.asked = len(asked)
    return answer
