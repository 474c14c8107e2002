"""The arguments of commands about strikes and pauses, and what a rule would match."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from docket.cli.support.connect import opened
from docket.cli.support.failures import WrongUsage
from docket.cli.support.output import printable, write_json
from docket.docket import Docket
from docket.execution.arguments import shown_value
from docket.ledger import Ledger
from docket.ledger.queries import FunctionCount, Source, TaskQuery
from docket.model import typed_texts
from docket.model.states import ExecutionState
from docket.strikelist import Operator, StrikeInstruction

ANY = "*"
# The end of a text that was too long.
_CUT = "…"

Parameter = Annotated[
    str | None, typer.Argument(metavar="PARAMETER", help="The parameter to compare. Without it, every call matches.")
]
Comparison = Annotated[Operator | None, typer.Argument(metavar="OPERATOR", help="One of == != > >= < <= between.")]
Value = Annotated[
    str | None,
    typer.Argument(
        metavar="VALUE", help=f"Text, or type:value with a type of {typed_texts.TYPES}. A range is int:1..5."
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", envvar="DOCKET_DRY_RUN", help="Count the tasks that match, and change nothing."),
]


def read_target(
    function: str, parameter: str | None, operator: Operator | None, value: str | None
) -> tuple[str | None, str | None, Operator, Any]:
    """The function, or None for every function, the parameter, the operator and the value."""
    # An empty name is usually a variable of the shell that is not set. It must not widen the rule.
    if function == "":
        raise WrongUsage(f"FUNCTION is empty; {ANY!r} is every function")
    if parameter == "":
        raise WrongUsage("PARAMETER is empty; without a parameter, leave it out")
    named = None if function == ANY else function
    about = None if parameter in (ANY, None) else parameter
    if about is None:
        if value is not None:
            raise WrongUsage(f"VALUE {value!r} needs the name of a parameter, for example: customer '==' {value}")
        return named, None, Operator.EQUAL, None
    if operator is None or value is None:
        raise WrongUsage(f"the parameter {about!r} needs an operator and a value, for example: {about} '==' int:5")
    try:
        read = typed_texts.read_range if operator is Operator.BETWEEN else typed_texts.read_value
        return named, about, operator, read(value)
    except ValueError as error:
        raise WrongUsage(f"VALUE: {error}") from None


def hint(instruction: StrikeInstruction, value: str | None) -> None:
    """Text never equals a number, so the user may have forgotten the type."""
    if (
        isinstance(instruction.value, str)
        and value is not None
        and (name := typed_texts.better_type(value)) is not None
    ):
        typer.echo(f"{value!r} is compared as text; if the argument is a {name}, write {name}:{value}", err=True)


@dataclass(frozen=True)
class Matches:
    """The unfinished tasks that a rule matches, by function. Only workers read arguments: `unknown`
    tasks of these functions may match, too."""

    functions: dict[str, FunctionCount]
    unknown: int = 0

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
        if instruction.parameter is not None:
            return await _count_by_text(docket.ledger, instruction, instruction.parameter)
        counts = await docket.ledger.queries.count_by_function()
    name = instruction.function
    return Matches(counts if name is None else {name: counts.get(name, FunctionCount())})


async def _count_by_text(ledger: Ledger, instruction: StrikeInstruction, parameter: str) -> Matches:
    """Producers store the texts of `Logged` arguments. Those can be compared with `==`."""
    wanted = _texts_of(instruction.value) if instruction.operator is Operator.EQUAL else None
    functions: dict[str, FunctionCount] = {}
    unknown = 0
    async for page in ledger.queries.all(Source.EVERY, TaskQuery(function=instruction.function)):
        for row in page:
            text = (row.shown_arguments or {}).get(parameter)
            if wanted is None or text is None or text.endswith(_CUT):
                unknown += row.state is not ExecutionState.RUNNING
            elif text in wanted:
                _count(functions.setdefault(row.task.function_name, FunctionCount()), row.state)
    return Matches(functions, unknown)


def _texts_of(value: Any) -> set[str]:
    """Equal numbers may look different."""
    texts = {shown_value(value)}
    if isinstance(value, bool | int | float) and value == value:
        texts |= {shown_value(float(value))} if abs(value) < 2**53 else set()
        texts |= {shown_value(int(value))} if not isinstance(value, float) or value.is_integer() else set()
        texts |= {shown_value(bool(value))} if value in (0, 1) else set()
    return texts


def _count(counts: FunctionCount, state: ExecutionState) -> None:
    counts.scheduled += state is ExecutionState.SCHEDULED
    counts.queued += state is ExecutionState.QUEUED
    counts.running += state is ExecutionState.RUNNING


def show_matches(docket: Docket, instruction: StrikeInstruction, found: Matches, *, json: bool) -> None:
    """The tasks that a rule would match: the output of --dry-run."""
    rule, waiting = instruction.call_repr(), found.scheduled + found.queued
    if json:
        functions = {name: _counted(count) for name, count in found.functions.items()}
        answer = {"docket": docket.name, "rule": rule, "unknown": found.unknown, "functions": functions}
        write_json({**answer, "scheduled": found.scheduled, "queued": found.queued, "running": found.running})
        return
    typer.echo(
        printable(
            f"{rule} on docket {docket.name!r} matches {waiting:,} waiting {'task' if waiting == 1 else 'tasks'} "
            f"({found.queued:,} queued, {found.scheduled:,} scheduled); {found.running:,} running would go on"
        )
    )
    if found.unknown:
        typer.echo(
            f"{found.unknown:,} more may match: only workers read arguments, and only Logged arguments have a text "
            "to compare with =="
        )
    if len(found.functions) > 1:
        for name, count in sorted(found.functions.items()):
            typer.echo(printable(f"  {name}: {count.queued:,} queued, {count.scheduled:,} scheduled"))
    typer.echo("Nothing was changed (--dry-run).")


def _counted(count: FunctionCount) -> dict[str, int]:
    return {name: number for name, number in asdict(count).items() if name != "earliest_due_ms"}
