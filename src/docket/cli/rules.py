"""The arguments of commands about strikes and pauses, and what a rule would match."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from docket.cli import values
from docket.cli.connect import opened
from docket.cli.failures import WrongUsage
from docket.cli.output import printable, write_json
from docket.docket import Docket
from docket.ledger.queries import FunctionCount, count_by_function
from docket.strikelist import Operator, StrikeInstruction

ANY = "*"

Parameter = Annotated[
    str | None, typer.Argument(metavar="PARAMETER", help="The parameter to compare. Without it, every call matches.")
]
Comparison = Annotated[Operator | None, typer.Argument(metavar="OPERATOR", help="One of == != > >= < <= between.")]
Value = Annotated[
    str | None,
    typer.Argument(metavar="VALUE", help=f"Text, or type:value with a type of {values.TYPES}. A range is int:1..5."),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", envvar="DOCKET_DRY_RUN", help="Count the tasks that match, and change nothing."),
]


def read_target(
    function: str, parameter: str | None, operator: Operator | None, value: str | None
) -> tuple[str | None, str | None, Operator, Any]:
    """The function, or None for every function, the parameter, the operator and the value."""
    named = None if function in (ANY, "") else function
    about = None if parameter in (ANY, "", None) else parameter
    if about is None:
        return named, None, Operator.EQUAL, None
    if operator is None or value is None:
        raise WrongUsage(f"the parameter {about!r} needs an operator and a value, for example: {about} == int:5")
    try:
        read = values.read_range if operator is Operator.BETWEEN else values.read_value
        return named, about, operator, read(value)
    except ValueError as error:
        raise WrongUsage(f"VALUE: {error}") from None


def hint(instruction: StrikeInstruction, value: str | None) -> None:
    """Text never equals a number, so the user may have forgotten the type."""
    if isinstance(instruction.value, str) and value is not None and (name := values.better_type(value)) is not None:
        typer.echo(f"{value!r} is compared as text; if the argument is a {name}, write {name}:{value}", err=True)


@dataclass(frozen=True)
class Matches:
    """The unfinished tasks that a rule is about, by function. A rule that compares an argument
    matches at most these: only workers read arguments."""

    functions: dict[str, FunctionCount]
    is_exact: bool

    @property
    def scheduled(self) -> int:
        return sum(count.scheduled for count in self.functions.values())

    @property
    def queued(self) -> int:
        return sum(count.queued for count in self.functions.values())

    @property
    def running(self) -> int:
        return sum(count.running for count in self.functions.values())


async def count_matches(docket: Docket, instruction: StrikeInstruction) -> Matches:
    async with opened(docket):
        counts = await count_by_function(docket.ledger)
    name = instruction.function
    return Matches(counts if name is None else {name: counts.get(name, FunctionCount())}, instruction.parameter is None)


def show_matches(docket: Docket, instruction: StrikeInstruction, found: Matches, *, json: bool) -> None:
    """What a rule would match: the output of --dry-run."""
    rule, waiting = instruction.call_repr(), found.scheduled + found.queued
    if json:
        functions = {name: _counted(count) for name, count in found.functions.items()}
        answer = {"docket": docket.name, "rule": rule, "exact": found.is_exact, "functions": functions}
        write_json({**answer, "scheduled": found.scheduled, "queued": found.queued, "running": found.running})
        return
    tasks = "task" if waiting == 1 else "tasks"
    typer.echo(
        printable(
            f"{rule} on docket {docket.name!r} matches {'' if found.is_exact else 'at most '}{waiting:,} waiting {tasks} "
            f"({found.queued:,} queued, {found.scheduled:,} scheduled); {found.running:,} running would go on"
        )
    )
    if not found.is_exact:
        typer.echo("Only workers read arguments, so these are all tasks of the function, whatever their arguments.")
    if len(found.functions) > 1:
        for name, count in sorted(found.functions.items()):
            typer.echo(printable(f"  {name}: {count.queued:,} queued, {count.scheduled:,} scheduled"))
    typer.echo("Nothing was changed (--dry-run).")


def _counted(count: FunctionCount) -> dict[str, int]:
    return {name: number for name, number in asdict(count).items() if name != "earliest_due_ms"}
