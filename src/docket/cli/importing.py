"""`docket import`"""

from __future__ import annotations

import dataclasses
import logging

import typer

from docket.cli.connect import opened, run
from docket.cli.docket_options import on_docket
from docket.cli.options import Json
from docket.cli.output import write_json
from docket.docket import Docket
from docket.ledger.foreign import Imported, import_foreign
from docket.ledger.foreign import logger as warnings

app: typer.Typer = typer.Typer(add_completion=False)

MOST_SHOWN = 10


@app.command("import")
@on_docket
def import_tasks(docket: Docket, json: Json = False) -> None:
    """Take over the tasks that pydocket left under this docket's name.

    Stop its workers and producers first. Keys, arguments, attempts and times are kept. A task is
    moved in one step, so the command may be interrupted and run again.
    """
    warnings.setLevel(logging.ERROR)  # It would advise to do what is being done.
    imported = run(_import(docket))
    if json:
        write_json({"docket": docket.name, **dataclasses.asdict(imported)})
    else:
        show(docket.name, imported)


async def _import(docket: Docket) -> Imported:
    async with opened(docket):
        return await import_foreign(docket.ledger)


def show(name: str, imported: Imported) -> None:
    moved = imported.scheduled + imported.queued
    tasks = "task" if moved == 1 else "tasks"
    typer.echo(
        f"Took over {moved:,} {tasks} ({imported.scheduled:,} scheduled, {imported.queued:,} queued) of {name!r}"
    )
    if imported.already_there:
        typer.echo(
            f"{len(imported.already_there):,} stay, since docket has tasks of the same keys; import them when those have "
            f"ended: {_first_of(imported.already_there)}"
        )
    if imported.unreadable:
        typer.echo(
            f"{len(imported.unreadable):,} cannot be read and stay where they are: {_first_of(imported.unreadable)}"
        )
    if imported.strikes:
        typer.echo(
            f"{imported.strikes:,} strike instructions are not taken over: strike again what is still to be blocked"
        )


def _first_of(keys: list[str]) -> str:
    shown = ", ".join(repr(key) for key in keys[:MOST_SHOWN])
    return shown if len(keys) <= MOST_SHOWN else f"{shown}, …"
