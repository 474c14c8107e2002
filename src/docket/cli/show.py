"""`docket show`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.failures import CommandFailed
from docket.cli.support.flags import Json
from docket.cli.support.output import ago, aligned, printable, write_json
from docket.docket import Docket
from docket.inspection.task import TaskDetails, read_details
from docket.model.texts import escaped_lines

app: typer.Typer = typer.Typer(add_completion=False)


@app.command()
@on_docket
def show(
    docket: Docket,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of the task.")],
    json: Json = False,
) -> None:
    """Show everything about one task.

    This includes why it does not run. Arguments and results are not decoded: only their size and
    codec are shown, and the arguments that the function marks as Logged. The traceback of a failed
    task is shown. The exit code is 1 if there is no such task.
    """
    details = run(_read(docket, key))
    if details is None:
        raise CommandFailed(
            f"docket {docket.name!r} has no task {key!r}: it was never scheduled, or its record has expired"
        )
    if json:
        write_json(details.as_json())
    else:
        _write(details)


async def _read(docket: Docket, key: str) -> TaskDetails | None:
    async with opened(docket):
        return await read_details(docket, key)


def _write(task: TaskDetails) -> None:
    now = task.why.taken
    rows = [("Key", task.key), ("Function", task.function), ("State", task.state.value)]
    rows += [("Why", str(reason)) for reason in (task.why, *task.why.also)]
    rows += [("Due", _moment(task.due, now)), ("Attempt", str(task.attempt))]
    if task.generation > 1:
        rows.append(("Generation", str(task.generation)))
    if task.losses:
        rows.append(("Lost workers", str(task.losses)))
    if task.redelivered:
        rows.append(("Redelivered", "yes: its body may have begun before"))
    if task.worker is not None:
        rows.append(("Worker", task.worker))
    if task.started_at is not None:
        rows.append(("Started", _moment(task.started_at, now)))
    if task.completed_at is not None:
        rows.append(("Ended", _moment(task.completed_at, now)))
    if task.cancel_requested:
        rows.append(("Cancel", "requested"))
    if task.progress is not None:
        done = f"{task.progress.current or 0} of {task.progress.total} {task.progress.message or ''}".rstrip()
        rows.append(("Progress", done))
    for failed in task.failed_attempts:
        rows.append((f"Attempt {failed.attempt}", f"failed {ago(failed.failed_at, now)}: {failed.error}"))
    rows.append(("Arguments", _arguments(task)))
    if task.error is not None:
        rows.append(("Error", task.error))
    for line in aligned([(f"{label}:", text) for label, text in rows]):
        typer.echo(line)
    if task.traceback is not None:
        typer.echo(f"\n{escaped_lines(task.traceback).rstrip()}")


def _moment(moment: datetime, now: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC ({ago(moment, now)})"


def _arguments(task: TaskDetails) -> str:
    shown = [f"{name}={text}" for name, text in (task.arguments or {}).items()]
    words = [
        *shown,
        f"{task.arguments_bytes:,} bytes",
        *(word for word in (task.codec, task.sealed) if word is not None),
    ]
    if task.arguments_stored_apart:
        words.append("stored apart")
    return printable(", ".join(words))
