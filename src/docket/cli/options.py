"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", envvar="DOCKET_JSON", help="Write JSON, for other programs.")]
NewKey = Annotated[
    str | None,
    typer.Option(
        "--key", envvar="DOCKET_TASK_KEY", metavar="KEY", help="The key of the task. By default a new unique key."
    ),
]


def tasks_option(help: str) -> Any:
    """The option `--tasks`."""
    return typer.Option("--tasks", envvar="DOCKET_TASKS", metavar="MODULE:NAME", help=help)
