"""`docket strike` and `docket restore`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from docket.cli import values
from docket.cli.connect import opened, run
from docket.cli.docket_options import on_docket
from docket.cli.failures import WrongUsage
from docket.cli.options import Json
from docket.cli.output import write_json
from docket.docket import Docket
from docket.strikelist import Operator, Restore, Strike, StrikeInstruction

strike_app: typer.Typer = typer.Typer(add_completion=False)
restore_app: typer.Typer = typer.Typer(add_completion=False)

ANY = "*"

Function = Annotated[
    str, typer.Argument(metavar="FUNCTION", help="The name of the task function; * for every function.")
]
Parameter = Annotated[
    str | None, typer.Argument(metavar="PARAMETER", help="The parameter to compare. Without it, every call matches.")
]
Comparison = Annotated[Operator | None, typer.Argument(metavar="OPERATOR", help="One of == != > >= < <= between.")]
Value = Annotated[
    str | None,
    typer.Argument(metavar="VALUE", help=f"Text, or type:value with a type of {values.TYPES}. A range is int:1..5."),
]


@strike_app.command()
@on_docket
def strike(
    docket: Docket,
    function: Function = ANY,
    parameter: Parameter = None,
    operator: Comparison = None,
    value: Value = None,
    json: Json = False,
) -> None:
    """Block tasks by function, by argument, or by both.

    Workers cancel matching tasks instead of running them, until the strike is restored.

    Examples: docket strike ship_order; docket strike ship_order
    customer == ACME; docket strike '*' amount '>' int:1000
    """
    instruction = Strike(*_target(function, parameter, operator, value))
    known = run(_send(docket, instruction))
    if json:
        write_json({"docket": docket.name, "struck": instruction.call_repr(), "was_in_effect": known})
        return
    _hint(instruction, value)
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
        _hint(instruction, value)
        typer.echo(f"No such strike: {instruction.call_repr()} on docket {docket.name!r}")


def _target(function: str, parameter: str | None, operator: Operator | None, value: str | None) -> tuple[Any, ...]:
    named = None if function in (ANY, "") else function
    about = None if parameter in (ANY, "", None) else parameter
    if named is None and about is None:
        raise WrongUsage(
            "name a function, or a parameter with an operator and a value, or both (see docket strike --help)"
        )
    if about is None:
        return named, None
    if operator is None or value is None:
        raise WrongUsage(f"the parameter {about!r} needs an operator and a value, for example: {about} == int:5")
    try:
        read = values.read_range if operator is Operator.BETWEEN else values.read_value
        return named, about, operator, read(value)
    except ValueError as error:
        raise WrongUsage(f"VALUE: {error}") from None


def _hint(instruction: StrikeInstruction, value: str | None) -> None:
    """Text never equals a number, so the user may have forgotten the type."""
    if isinstance(instruction.value, str) and value is not None and (name := values.better_type(value)) is not None:
        typer.echo(f"{value!r} is compared as text; if the argument is a {name}, write {name}:{value}", err=True)


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
