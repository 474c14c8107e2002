"""Adds a task for a command, and says what became of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import typer

from docket.cli.support.output import printable, write_json
from docket.docket import Docket
from docket.execution import Disposition, Execution


async def add_task(
    docket: Docket, name: str, when: datetime | None, key: str | None, *args: Any, **kwargs: Any
) -> Execution:
    """Adds the task, and writes down in the audit who did. The docket is open."""
    async with docket.ledger.audit.change("add", name) as entry:
        execution = await docket.add(name, when, key)(*args, **kwargs)
        is_new = execution.disposition is Disposition.SCHEDULED
        entry.about, entry.count = f"{name} {execution.key}", int(is_new)
        entry.outcome = "done" if is_new else execution.disposition.value.replace("_", " ")
    return execution


def show_added(docket: str, task: str, execution: Execution, as_json: bool) -> None:
    key, added = execution.key, execution.disposition
    if as_json:
        moment = {"when": execution.when.isoformat(), "state": execution.state.value}
        write_json({"docket": docket, "task": task, "key": key, "disposition": added.value, **moment})
    elif added is Disposition.SCHEDULED:
        typer.echo(printable(f"Added {task} task {key!r} to docket {docket!r}"))
    elif added is Disposition.STRUCK:
        typer.echo(printable(f"Nothing was added: a strike on docket {docket!r} blocks {task}"))
    else:
        typer.echo(printable(f"Nothing was added: docket {docket!r} already has a task {key!r}"))
