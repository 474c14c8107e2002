"""Says what became of a task that a command has added."""

from __future__ import annotations

import typer

from docket.cli.output import printable, write_json
from docket.execution import Disposition, Execution


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
