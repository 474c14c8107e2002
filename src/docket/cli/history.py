"""`docket history`"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.flags import Json, duration
from docket.cli.support.output import write_json, write_table
from docket.dependencies import format_duration
from docket.docket import Docket
from docket.ledger.history import FinishedRun
from docket.model.states import FAILURE_KINDS, EndingKind

app: typer.Typer = typer.Typer(add_completion=False)

Function = Annotated[
    str | None, typer.Argument(metavar="[FUNCTION]", help="The name of a task function. By default all.")
]
Key = Annotated[
    str | None,
    typer.Option("--key", envvar="DOCKET_HISTORY_KEY", metavar="KEY", help="Show only the runs of this task."),
]
Failures = Annotated[bool, typer.Option("--failures", envvar="DOCKET_HISTORY_FAILURES", help="Show only failures.")]
Ending = Annotated[
    list[EndingKind] | None,
    typer.Option(
        "--ending", envvar="DOCKET_HISTORY_ENDING", help="Show only runs that ended like this. May be given repeatedly."
    ),
]
Since = Annotated[
    timedelta | None,
    typer.Option(
        "--since",
        parser=duration,
        envvar="DOCKET_HISTORY_SINCE",
        metavar="DURATION",
        help="How far to look back: 15m, 3h, 2d. By default as far as the history goes.",
    ),
]
Before = Annotated[
    str | None,
    typer.Option(
        "--before",
        envvar="DOCKET_HISTORY_BEFORE",
        metavar="ID",
        help="Go on with runs that are older than this one: the last id of the JSON before.",
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", envvar="DOCKET_HISTORY_LIMIT", min=1, help="Show at most this many runs.")
]

_COLUMNS = ("Ended", "Function", "Key", "Ending", "Attempt", "Ran", "Waited", "Worker", "Error")


@app.command()
@on_docket
def history(
    docket: Docket,
    function: Function = None,
    key: Key = None,
    failures: Failures = False,
    ending: Ending = None,
    since: Since = None,
    before: Before = None,
    limit: Limit = 20,
    json: Json = False,
) -> None:
    """List the runs that finished lately: failures, and some of the others. The newest comes first.

    docket keeps failures for 7 days at most, and the others for a day, about 10,000 of each. A
    function that fails more than 20 times a minute has some of its failures here; docket stats
    counts all of them.
    """
    if failures and ending:
        raise typer.BadParameter("--failures goes with no --ending")
    kinds = FAILURE_KINDS if failures else ending or None
    found = run(_history(docket, function, key=key, endings=kinds, since=since, before=before, limit=limit))
    if json:
        write_json({"docket": docket.name, "runs": [_facts(one) for one in found]})
        return
    write_table(f"docket {docket.name!r}", _COLUMNS, [_row(one) for one in found])
    left_out = sum(one.left_out for one in found if one.is_failure)
    if left_out:
        typer.echo("Some functions failed so often that not every failure is here; docket stats counts all of them.")


async def _history(docket: Docket, function: str | None, **selected: Any) -> list[FinishedRun]:
    async with opened(docket):
        try:
            return await docket.history(function, **selected)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None


def _row(one: FinishedRun) -> tuple[str, ...]:
    return (
        f"{one.ended_at:%Y-%m-%d %H:%M:%S}",
        one.function,
        one.key,
        one.ending.value,
        str(one.attempt),
        *("-" if time is None else format_duration(time.total_seconds()) for time in (one.run_time, one.waiting_time)),
        one.worker or "-",
        (one.error or "").partition("\n")[0],
    )


def _facts(one: FinishedRun) -> dict[str, Any]:
    return {
        "id": one.id,
        "function": one.function,
        "key": one.key,
        "ending": one.ending.value,
        "attempt": one.attempt,
        "worker": one.worker,
        "due_at": one.due_at.isoformat(),
        "started_at": None if one.started_at is None else one.started_at.isoformat(),
        "ended_at": one.ended_at.isoformat(),
        "run_seconds": None if one.run_time is None else one.run_time.total_seconds(),
        "waiting_seconds": None if one.waiting_time is None else one.waiting_time.total_seconds(),
        "error": one.error,
        "left_out": one.left_out,
    }
