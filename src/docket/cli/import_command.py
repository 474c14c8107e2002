"""`docket import`"""

from __future__ import annotations

import dataclasses
import logging

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.flags import Json
from docket.cli.support.output import write_json
from docket.docket import Docket
from docket.ledger.foreign import Imported
from docket.ledger.foreign import logger as warnings

app: typer.Typer = typer.Typer(add_completion=False)

MOST_SHOWN = 10


@app.command("import")
@on_docket
def import_tasks(docket: Docket, json: Json = False) -> None:
    """Import the tasks that pydocket stored under the docket's name.

    Stop the workers and producers of pydocket first. Tasks keep their keys, arguments, attempts and
    due times. Each task moves in one step, so the command can be interrupted and run again.
    """
    # The warning advises the user to run this command.
    warnings.setLevel(logging.ERROR)
    imported = run(_import(docket))
    if json:
        write_json({"docket": docket.name, **dataclasses.asdict(imported)})
    else:
        show(docket.name, imported)


async def _import(docket: Docket) -> Imported:
    async with opened(docket), docket.ledger.audit.change("import") as entry:
        imported = await docket.ledger.foreign.take_over(docket.payloads)
        entry.count = imported.scheduled + imported.queued
        return imported


def show(name: str, imported: Imported) -> None:
    moved = imported.scheduled + imported.queued
    tasks = "task" if moved == 1 else "tasks"
    typer.echo(
        f"Imported {moved:,} {tasks} ({imported.scheduled:,} scheduled, {imported.queued:,} queued) into docket {name!r}"
    )
    if imported.already_there:
        typer.echo(
            f"Not imported: {len(imported.already_there):,} whose keys belong to unfinished tasks of this docket; run the "
            f"import again when those have ended: {_first_of(imported.already_there)}"
        )
    if imported.unreadable:
        typer.echo(f"Not imported: {len(imported.unreadable):,} that cannot be read: {_first_of(imported.unreadable)}")
    if imported.strikes:
        typer.echo(f"Not imported: {imported.strikes:,} strike instructions; repeat the strikes that you still need")


def _first_of(keys: list[str]) -> str:
    shown = ", ".join(repr(key) for key in keys[:MOST_SHOWN])
    return shown if len(keys) <= MOST_SHOWN else f"{shown}, …"
