"""`docket clear`"""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.failures import WrongUsage
from docket.cli.support.flags import Json
from docket.cli.support.output import printable, write_json
from docket.cli.support.terminal import Yes, ask, is_at_terminal
from docket.docket import Docket
from docket.inspection.snapshot import count_waiting
from docket.model.states import ExecutionState
from docket.storage.client.urls import hide_password

app: typer.Typer = typer.Typer(add_completion=False)


class WaitingState(enum.StrEnum):
    QUEUED = "queued"
    SCHEDULED = "scheduled"


State = Annotated[
    WaitingState | None,
    typer.Option("--state", envvar="DOCKET_CLEAR_STATE", case_sensitive=False, help="Cancel only tasks in this state."),
]
Function = Annotated[
    str | None,
    typer.Option(
        "--function", envvar="DOCKET_CLEAR_FUNCTION", metavar="NAME", help="Cancel only tasks of this function."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key", envvar="DOCKET_CLEAR_KEY", metavar="PREFIX", help="Cancel only tasks whose key starts with this."
    ),
]


@app.command()
@on_docket
def clear(
    docket: Docket,
    function: Function = None,
    key: Key = None,
    state: State = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Cancel every waiting task, or those that match. Running tasks continue.

    At a terminal the command asks first; in a script it does not. Programs that wait for the result
    of a removed task get ExecutionCancelled. Strikes stay in effect.
    """
    for option, text in (("--function", function), ("--key", key)):
        if text == "":
            raise WrongUsage(f"{option} is empty; leave it out")
    chosen = ExecutionState(state.value) if state else None
    removed = run(_clear(docket, function, key, chosen, asks=not yes and not json and is_at_terminal()))
    if json:
        write_json({"docket": docket.name, "removed": removed})
    else:
        typer.echo(printable(f"Removed {removed:,} {'task' if removed == 1 else 'tasks'} from docket {docket.name!r}"))


async def _clear(
    docket: Docket, function: str | None, key: str | None, state: ExecutionState | None, *, asks: bool
) -> int:
    async with opened(docket):
        if asks:
            count, is_exact = await count_waiting(docket.ledger, function, key, state)
            if count == 0:
                return 0
            tasks = f"{'' if is_exact else 'more than '}{count:,} waiting {'task' if count == 1 else 'tasks'}"
            ask(printable(f"Cancel {tasks} of docket {docket.name!r} on {hide_password(docket.url)}?"))
        return await docket.clear(function=function, key_prefix=key, state=state)
