"""`docket pause`, `docket resume` and `docket held`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.failures import WrongUsage
from docket.cli.support.flags import Json
from docket.cli.support.output import ago, printable, write_json, write_table
from docket.cli.support.rules import (
    ANY,
    Comparison,
    DryRun,
    Parameter,
    Value,
    count_matches,
    hint,
    read_target,
    show_matches,
)
from docket.docket import Docket
from docket.strikelist.instructions import PauseRule
from docket.strikelist.pauses import Pause

pause_app: typer.Typer = typer.Typer(add_completion=False)
resume_app: typer.Typer = typer.Typer(add_completion=False)
held_app: typer.Typer = typer.Typer(add_completion=False)

Function = Annotated[
    str,
    typer.Argument(metavar="FUNCTION", help="The name of the task function; * alone is the whole docket."),
]


@pause_app.command()
@on_docket
def pause(
    docket: Docket,
    function: Function,
    parameter: Parameter = None,
    operator: Comparison = None,
    value: Value = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Hold tasks by function, by argument, or by both, until you resume.

    Waiting and new tasks that match wait in order. Running tasks continue. Nothing is cancelled.

    Examples: docket pause send_mail; docket pause send_mail customer '==' ACME;
    docket pause '*' region '==' eu; docket pause '*'
    """
    rule = PauseRule(*read_target(function, parameter, operator, value))
    if dry_run:
        show_matches(docket, rule, run(count_matches(docket, rule)), json=json)
        return
    known, paused = run(_pause(docket, rule))
    if json:
        write_json({"docket": docket.name, "was_paused": known, **_as_json(paused)})
        return
    hint(rule, value)
    typer.echo(
        printable(
            f"{'Already paused' if known else 'Paused'}: {paused} on docket {docket.name!r}"
            + (f", {_tasks(paused.held)} held" if known else "")
        )
    )


@resume_app.command()
@on_docket
def resume(
    docket: Docket,
    function: Annotated[
        str | None,
        typer.Argument(metavar="FUNCTION", help="The same arguments as for the pause; * alone is the whole docket."),
    ] = None,
    parameter: Parameter = None,
    operator: Comparison = None,
    value: Value = None,
    id: Annotated[
        str | None,
        typer.Option("--id", envvar="DOCKET_RESUME_ID", help="Resume the pause with this id, from `docket held`."),
    ] = None,
    all: Annotated[bool, typer.Option("--all", envvar="DOCKET_RESUME_ALL", help="Resume every pause.")] = False,
    json: Json = False,
) -> None:
    """Lift a pause: its tasks go on in order.

    Give the same arguments as for the pause, or its id. The workers let a large number of tasks go
    on a few at a time.
    """
    if (function is not None) + (id is not None) + all != 1:
        raise WrongUsage("give the arguments of a pause, or --id, or --all (docket held lists the pauses)")
    rule = PauseRule(*read_target(function, parameter, operator, value)) if function is not None else None
    resumed = run(_resume(docket, rule, id))
    if json:
        write_json({"docket": docket.name, "resumed": [{"pause": name, "held": held} for name, held in resumed]})
        return
    for name, held in resumed:
        going_on = f"{_tasks(held)} {'goes' if held == 1 else 'go'} on"
        typer.echo(printable(f"Resumed: {name} on docket {docket.name!r}: {going_on}"))
    if not resumed:
        typer.echo(printable(f"Nothing is paused on docket {docket.name!r}"))


@held_app.command()
@on_docket
def held(docket: Docket, json: Json = False) -> None:
    """List the pauses, and how many tasks they hold."""
    pauses, now = run(_read(docket))
    if json:
        write_json([_as_json(found) for found in pauses])
    elif not pauses:
        typer.echo(printable(f"Nothing is paused on docket {docket.name!r}"))
    else:
        rows = [(found.id, str(found), f"{found.held:,}", ago(found.since, now), _state(found)) for found in pauses]
        write_table(f"Pauses of docket {docket.name!r}", ("Id", "Pause", "Held", "Since", "State"), rows)


async def _pause(docket: Docket, rule: PauseRule) -> tuple[bool, Pause]:
    """Whether it was paused before, and the pause."""
    async with opened(docket, must_exist=False):
        before = {found.id for found in await docket.pauses() if not found.is_resuming}
        paused = await docket.pause(rule.function or ANY, rule.parameter, rule.operator, rule.value)
        return paused.id in before, paused


async def _resume(docket: Docket, rule: PauseRule | None, id: str | None) -> list[tuple[str, int]]:
    async with opened(docket):
        if rule is not None:
            target: tuple[Any, ...] = (rule.function or ANY, rule.parameter, rule.operator, rule.value)
            return [(rule.call_repr(), await docket.resume(*target))]
        if id is not None:
            names = {found.id: str(found) for found in await docket.pauses()}
            return [(names.get(id, id), await docket.pause_store.resume_id(id))]
        return [(str(found), await docket.resume(found)) for found in await docket.pauses()]


async def _read(docket: Docket) -> tuple[list[Pause], Any]:
    async with opened(docket):
        return await docket.pauses(), await docket.ledger.now()


def _state(found: Pause) -> str:
    if found.problem is not None:
        return f"cannot be read here: {found.problem}"
    return "its tasks go on" if found.is_resuming else "paused"


def _as_json(found: Pause) -> dict[str, Any]:
    return {
        "id": found.id,
        "pause": str(found),
        "function": found.function,
        "parameter": found.parameter,
        "operator": found.operator.value if found.parameter is not None else None,
        "since": found.since.isoformat(),
        "held": found.held,
        "resuming": found.is_resuming,
        "unreadable": found.problem,
    }


def _tasks(count: int) -> str:
    return f"{count:,} {'task' if count == 1 else 'tasks'}"
