"""Which commands there are. Each is loaded when it
is named, so that `docket --help` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer

from docket._version import __version__
from docket.cli.group import CommandEntry, LazyCommands

INTERRUPTED = 130

WORK, LOOK, TRY = "Work", "TaskStatus and steer", "Try it"

COMMANDS = {
    "worker": CommandEntry("docket.cli.worker:app", "Run a worker.", WORK),
    "snapshot": CommandEntry("docket.cli.snapshot:app", "Show what waits, what runs and who works.", LOOK),
    "top": CommandEntry("docket.cli.top:app", "Watch a docket live: queues, rates, running tasks, failures.", LOOK),
    "watch": CommandEntry("docket.cli.watch:app", "Follow one task to its end.", LOOK),
    "workers": CommandEntry("docket.cli.workers:app", "See who works on a docket.", LOOK),
    "strike": CommandEntry("docket.cli.strikes:strike_app", "Block tasks by function, by argument, or by both.", LOOK),
    "restore": CommandEntry("docket.cli.strikes:restore_app", "Lift a strike.", LOOK),
    "clear": CommandEntry("docket.cli.clear:app", "Remove every task that waits; running tasks go on.", LOOK),
    "import": CommandEntry(
        "docket.cli.importing:app", "Take over the tasks that pydocket left under this docket's name.", LOOK
    ),
    "tasks": CommandEntry(
        "docket.cli.tasks:app", "List the tasks that a worker would know, or schedule a built-in one.", TRY
    ),
    "demo": CommandEntry("docket.cli.demo:app", "See docket at work: no server, no set-up, about 20 seconds.", TRY),
    "bench": CommandEntry("docket.cli.bench:app", "Measure what docket gets out of your server.", TRY),
    "version": CommandEntry("docket.cli.version:app", "Show the version of docket.", TRY),
}


class Commands(LazyCommands):
    entries: ClassVar[Mapping[str, CommandEntry]] = COMMANDS


class Application(typer.Typer):
    """A command that ends quietly when it is interrupted before it has begun."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


app: Application = Application(cls=Commands, name="docket", no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def docket(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Background tasks for Python functions, on Redis, Valkey or the embedded engine.

    New here? Try: docket demo
    """
