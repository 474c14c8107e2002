"""`docket workers ls` and `docket workers for-task`"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.flags import Json
from docket.cli.support.output import ago, write_json, write_table
from docket.docket import Docket, WorkerInfo

app: typer.Typer = typer.Typer(add_completion=False, no_args_is_help=True, help="List the workers of a docket.")


@app.command("ls")
@on_docket
def ls(docket: Docket, json: Json = False) -> None:
    """List the live workers of a docket."""
    _show(f"Workers of docket {docket.name!r}", *run(_workers(docket)), json)


@app.command("for-task")
@on_docket
def for_task(
    docket: Docket,
    task: Annotated[str, typer.Argument(metavar="NAME", help="The name of the task function.")],
    json: Json = False,
) -> None:
    """List the live workers that know a task function."""
    _show(f"Workers of docket {docket.name!r} that know {task}", *run(_workers(docket, task)), json)


async def _workers(docket: Docket, task: str | None = None) -> tuple[Sequence[WorkerInfo], datetime]:
    async with opened(docket):
        found = await (docket.workers() if task is None else docket.task_workers(task))
        now = await docket.ledger.now()
    return sorted(found, key=lambda worker: worker.name), now


def _show(title: str, workers: Sequence[WorkerInfo], now: datetime, as_json: bool) -> None:
    if as_json:
        write_json([{"name": w.name, "last_seen": w.last_seen.isoformat(), "tasks": sorted(w.tasks)} for w in workers])
        return
    if not workers:
        typer.echo(f"{title}: none")
        return
    rows = [(w.name, ago(w.last_seen, now), ", ".join(sorted(w.tasks))) for w in workers]
    write_table(title, ("Name", "Seen", "Tasks"), rows)
