"""The list of commands. A command is imported only when
it runs, so that `docket --help` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer

from docket._version import __version__
from docket.cli.support.group import CommandEntry, LazyCommands
from docket.cli.support.standard_output import open_missing_streams

INTERRUPTED = 130

RUN, OPERATE, EXPLORE = "Run", "Inspect and operate", "Explore"

COMMANDS = {
    "worker": CommandEntry("docket.cli.worker:app", "Run a worker.", RUN),
    "snapshot": CommandEntry("docket.cli.snapshot:app", "Show the tasks that wait and run, and the workers.", OPERATE),
    "top": CommandEntry(
        "docket.cli.top:app", "Watch a docket live: waiting and running tasks, rates, failures.", OPERATE
    ),
    "web": CommandEntry("docket.cli.web:app", "Look at a docket in a browser, and operate it.", OPERATE),
    "add": CommandEntry("docket.cli.add:app", "Add a task.", OPERATE),
    "show": CommandEntry("docket.cli.show:app", "Show everything about one task.", OPERATE),
    "stats": CommandEntry(
        "docket.cli.stats:app", "Show how runs ended, how long they took and how long their tasks had waited.", OPERATE
    ),
    "history": CommandEntry(
        "docket.cli.history:app", "List the runs that finished lately: failures, and some of the others.", OPERATE
    ),
    "audit": CommandEntry("docket.cli.audit:app", "List who changed what on a docket.", OPERATE),
    "why": CommandEntry("docket.cli.why:app", "Say why a task does not run.", OPERATE),
    "watch": CommandEntry("docket.cli.watch:app", "Follow one task until it ends.", OPERATE),
    "workers": CommandEntry("docket.cli.workers:app", "List the workers of a docket.", OPERATE),
    "strike": CommandEntry(
        "docket.cli.strikes:strike_app", "Block tasks by function, by argument, or by both.", OPERATE
    ),
    "restore": CommandEntry("docket.cli.strikes:restore_app", "Lift a strike.", OPERATE),
    "strikes": CommandEntry("docket.cli.strikes:app", "List and remove strikes.", OPERATE),
    "pause": CommandEntry(
        "docket.cli.pauses:pause_app", "Hold tasks by function, by argument, or by both, until you resume.", OPERATE
    ),
    "resume": CommandEntry("docket.cli.pauses:resume_app", "Lift a pause: its tasks go on in order.", OPERATE),
    "held": CommandEntry("docket.cli.pauses:held_app", "List the pauses, and how many tasks they hold.", OPERATE),
    "dead": CommandEntry("docket.cli.dead:app", "Tasks that failed for good: look, retry, edit, discard.", OPERATE),
    "cancel": CommandEntry("docket.cli.cancel:app", "Cancel tasks by key, or all tasks of a function.", OPERATE),
    "clear": CommandEntry(
        "docket.cli.clear:app", "Cancel every waiting task, or those that match. Running tasks continue.", OPERATE
    ),
    "acl": CommandEntry("docket.cli.acl:app", "Print the ACL rules that limit users to this docket.", OPERATE),
    "import": CommandEntry(
        "docket.cli.import_command:app", "Import the tasks that pydocket stored under the docket's name.", OPERATE
    ),
    "tasks": CommandEntry(
        "docket.cli.tasks:app", "List the tasks that a worker would know, or schedule a built-in task.", EXPLORE
    ),
    "demo": CommandEntry(
        "docket.cli.demo:app", "See docket at work: about 20 seconds, no server and no setup.", EXPLORE
    ),
    "bench": CommandEntry("docket.cli.bench:app", "Measure docket's speed on your server.", EXPLORE),
    "version": CommandEntry("docket.cli.version:app", "Show the version of docket.", EXPLORE),
}


class Commands(LazyCommands):
    entries: ClassVar[Mapping[str, CommandEntry]] = COMMANDS


class Application(typer.Typer):
    """A Ctrl-C before the command has started ends the program without a traceback."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        open_missing_streams()
        try:
            return super().__call__(*args, **kwargs)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


app: Application = Application(cls=Commands, name="docket", no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(requested: bool) -> None:
    if requested:
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
