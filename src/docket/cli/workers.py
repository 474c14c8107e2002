"""`docket workers ls` and `docket workers for-task`"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from docket.cli.opening import open_docket, run
from docket.cli.options import DEFAULT_DOCKET, DEFAULT_URL, DocketName, Json, Url
from docket.cli.output import ago, write_json, write_table
from docket.docket import WorkerInfo

app = typer.Typer(add_completion=False, no_args_is_help=True, help="See who works on a docket.")


@app.command("ls")
def ls(docket: DocketName = DEFAULT_DOCKET, url: Url = DEFAULT_URL, json: Json = False) -> None:
    """List the workers that run now."""
    _show(f"Workers of docket {docket!r}", run(_workers(docket, url)), json)


@app.command("for-task")
def for_task(
    task: Annotated[str, typer.Argument(metavar="NAME", help="The name of the task.")],
    docket: DocketName = DEFAULT_DOCKET,
    url: Url = DEFAULT_URL,
    json: Json = False,
) -> None:
    """List the workers that know a task."""
    _show(f"Workers of docket {docket!r} that know {task}", run(_workers(docket, url, task)), json)


async def _workers(name: str, url: str, task: str | None = None) -> Sequence[WorkerInfo]:
    async with open_docket(name, url) as docket:
        found = await (docket.workers() if task is None else docket.task_workers(task))
    return sorted(found, key=lambda worker: worker.name)


def _show(title: str, workers: Sequence[WorkerInfo], as_json: bool) -> None:
    if as_json:
        write_json([{"name": w.name, "last_seen": w.last_seen.isoformat(), "tasks": sorted(w.tasks)} for w in workers])
        return
    if not workers:
        typer.echo(f"{title}: none")
        return
    now = datetime.now(UTC)
    rows = [(w.name, ago(w.last_seen, now), ", ".join(sorted(w.tasks))) for w in workers]
    write_table(title, ("Name", "Seen", "Tasks"), rows)
