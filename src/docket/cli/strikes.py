"""`docket strike`, `docket restore` and `docket strikes`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.failures import WrongUsage
from docket.cli.support.flags import Json
from docket.cli.support.output import printable, write_json, write_table
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
from docket.strikelist import Operator, Restore, Strike, StrikeInstruction

strike_app: typer.Typer = typer.Typer(add_completion=False)
restore_app: typer.Typer = typer.Typer(add_completion=False)

Function = Annotated[
    str, typer.Argument(metavar="FUNCTION", help="The name of the task function; * for every function.")
]


@strike_app.command()
@on_docket
def strike(
    docket: Docket,
    function: Function = ANY,
    parameter: Parameter = None,
    operator: Comparison = None,
    value: Value = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Block tasks by function, by argument, or by both.

    Workers cancel matching tasks instead of running them, until the strike is restored.

    Examples: docket strike ship_order; docket strike ship_order
    customer '==' ACME; docket strike '*' amount '>' int:1000
    """
    instruction = Strike(*_target(function, parameter, operator, value))
    if dry_run:
        show_matches(docket, instruction, run(count_matches(docket, instruction)), json=json)
        return
    known = run(_send(docket, instruction))
    if json:
        write_json({"docket": docket.name, "struck": instruction.call_repr(), "was_in_effect": known})
        return
    hint(instruction, value)
    typer.echo(f"{'Already struck' if known else 'Struck'}: {instruction.call_repr()} on docket {docket.name!r}")


@restore_app.command()
@on_docket
def restore(
    docket: Docket,
    function: Function = ANY,
    parameter: Parameter = None,
    operator: Comparison = None,
    value: Value = None,
    json: Json = False,
) -> None:
    """Lift a strike. Give the same arguments as for the strike."""
    instruction = Restore(*_target(function, parameter, operator, value))
    known = run(_send(docket, instruction))
    if json:
        write_json({"docket": docket.name, "restored": instruction.call_repr(), "was_in_effect": known})
    elif known:
        typer.echo(f"Restored: {instruction.call_repr()} on docket {docket.name!r}")
    else:
        hint(instruction, value)
        typer.echo(f"No such strike: {instruction.call_repr()} on docket {docket.name!r}")


def _target(function: str, parameter: str | None, operator: Operator | None, value: str | None) -> tuple[Any, ...]:
    target = read_target(function, parameter, operator, value)
    if target[0] is None and target[1] is None:
        raise WrongUsage(
            "name a function, or a parameter with an operator and a value, or both (see docket strike --help)"
        )
    return target


async def _send(docket: Docket, instruction: StrikeInstruction) -> bool:
    """Sends the instruction. Returns whether the strike was in effect before."""
    async with opened(docket, must_exist=isinstance(instruction, Restore)):
        await docket.wait_for_strikes_loaded()
        known = _is_in_effect(docket, instruction)
        send = docket.strike if isinstance(instruction, Strike) else docket.restore
        await send(instruction.function, instruction.parameter, instruction.operator, instruction.value)
        return known


def _is_in_effect(docket: Docket, instruction: StrikeInstruction) -> bool:
    return any(
        strike.target == instruction.target
        and type(strike.value) is type(instruction.value)
        and strike.value == instruction.value
        for strike in docket.strike_list.in_effect
    )


app: typer.Typer = typer.Typer(add_completion=False, no_args_is_help=True, help="List and remove strikes.")


@app.command("ls")
@on_docket
def ls(docket: Docket, json: Json = False) -> None:
    """List the strikes of a docket, also those that cannot be read."""
    strikes, unreadable = run(_read(docket))
    if json:
        listed = [{"id": id, "strike": text, "unreadable": None} for id, text in strikes.items()]
        write_json([*listed, *({"id": id, "strike": None, "unreadable": why} for id, why in unreadable.items())])
    elif not strikes and not unreadable:
        typer.echo(f"Strikes of docket {printable(docket.name)!r}: none")
    else:
        rows = [*strikes.items(), *((id, f"cannot be read, strikes nothing: {why}") for id, why in unreadable.items())]
        write_table(f"Strikes of docket {docket.name!r}", ("Id", "Strike"), rows)


@app.command("remove")
@on_docket
def remove(
    docket: Docket,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the strike, from `docket strikes ls`.")],
    json: Json = False,
) -> None:
    """Remove a strike by its id, also one that cannot be read."""
    removed = run(_remove(docket, id))
    if json:
        write_json({"docket": docket.name, "id": id, "removed": removed})
    else:
        typer.echo(printable(f"{'Removed' if removed else 'No such strike'}: {id} on docket {docket.name!r}"))


async def _read(docket: Docket) -> tuple[dict[str, str], dict[str, str]]:
    async with opened(docket):
        await docket.wait_for_strikes_loaded()
        strikes = docket.strike_list
        return {id: strike.call_repr() for id, strike in strikes.by_id.items()}, strikes.unreadable


async def _remove(docket: Docket, id: str) -> bool:
    async with opened(docket):
        await docket.wait_for_strikes_loaded()
        return await docket.strike_list.discard(id)
