"""`docket strike` and `docket restore`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from docket.cli.connect import opened, run
from docket.cli.docket_options import on_docket
from docket.cli.failures import WrongUsage
from docket.cli.output import write_json
from docket.cli.rules import (
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
from docket.cli.support.flags import Json
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
