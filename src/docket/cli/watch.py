"""`docket watch`"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from docket._aio import cancel_and_wait
from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.failures import FAILED, CommandFailed
from docket.cli.support.flags import Json, duration
from docket.cli.support.output import is_terminal, printable, write_json
from docket.dependencies import format_duration
from docket.docket import Docket
from docket.execution import ExecutionState, ProgressEvent, StateEvent

app: typer.Typer = typer.Typer(add_completion=False)

# Between two checks that the task still exists. A task that keeps no record when it
# ends sends one last message. If that is lost, only a check notices the end.
CHECK_SECONDS = 15.0

Timeout = Annotated[
    timedelta | None,
    typer.Option(
        "--timeout",
        parser=duration,
        envvar="DOCKET_WATCH_TIMEOUT",
        metavar="DURATION",
        help="Give up after this long.",
        show_default=False,
    ),
]


class Screen(Protocol):
    """Where the events of a task are shown."""

    def show(self, event: StateEvent | ProgressEvent) -> None: ...

    def close(self) -> None: ...


class JsonScreen:
    def show(self, event: StateEvent | ProgressEvent) -> None:
        shown: dict[str, Any] = {**event}
        if event["type"] == "state":
            shown["state"] = event["state"].value
        write_json(shown)

    def close(self) -> None:
        pass


class LineScreen:
    """Writes a line for each event. The first line names the task,
    for readers of a log file."""

    def __init__(self, key: str, function: str, docket: str) -> None:
        typer.echo(printable(f"Watching task {key!r} ({function}) on docket {docket!r}"))

    def show(self, event: StateEvent | ProgressEvent) -> None:
        line = in_words(event)
        if line:
            typer.echo(f"{datetime.now():%H:%M:%S} {line}")

    def close(self) -> None:
        pass


@app.command()
@on_docket
def watch(
    docket: Docket,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of the task.")],
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Follow one task until it ends.

    The exit code is 0 if the task completes, and 1 if it fails or is cancelled.
    """
    ending = run(_watch(docket, key, timeout, json))
    if not json and is_terminal():
        typer.echo(in_words(ending))
    return 0 if ending["state"] is ExecutionState.COMPLETED else FAILED


async def _watch(docket: Docket, key: str, timeout: timedelta | None, as_json: bool) -> StateEvent:
    async with opened(docket):
        screen = await _screen(docket, key, as_json)
        try:
            async with asyncio.timeout(timeout.total_seconds() if timeout is not None else None):
                return await _follow(docket, key, screen)
        except TimeoutError:
            raise CommandFailed(f"task {key!r} did not end within the timeout") from None
        finally:
            screen.close()


async def _screen(docket: Docket, key: str, as_json: bool) -> Screen:
    status = await docket.ledger.tasks.get(key)
    record = status.task or (status.finished.task if status.finished else None)
    if record is None:
        raise CommandFailed(
            f"docket {docket.name!r} has no task {key!r}: it was never scheduled, or its record has expired"
        )
    if as_json:
        return JsonScreen()
    return (
        ProgressBar(record.function_name, key) if is_terminal() else LineScreen(key, record.function_name, docket.name)
    )


async def _follow(docket: Docket, key: str, screen: Screen) -> StateEvent:
    """Returns the event that ended the task. Checks now and then that the task still exists."""
    following = asyncio.create_task(_last_event(docket, key, screen))
    try:
        while not following.done():
            await asyncio.wait([following], timeout=CHECK_SECONDS)
            status = await docket.ledger.tasks.get(key) if not following.done() else None
            if status is not None and status.task is None and status.finished is None:
                raise CommandFailed(f"task {key!r} is gone: it ended without leaving a record")
        return following.result()
    finally:
        await cancel_and_wait([following], "docket: the watch is over")


async def _last_event(docket: Docket, key: str, screen: Screen) -> StateEvent:
    async with aclosing(docket.watch(key)) as events:
        event, progress = await anext(events), await anext(events)
        screen.show(event)
        screen.show(progress)
        while event["type"] == "progress" or not event["state"].finished:
            event = await anext(events)
            screen.show(event)
        return event


def _mark(ending: ExecutionState) -> str:
    return "✓" if ending is ExecutionState.COMPLETED else "✗"


def in_words(event: StateEvent | ProgressEvent) -> str:
    """Describes an event on one line. Returns "" for progress that the task never set."""
    if event["type"] == "progress":
        if event["current"] is None and event["message"] is None:
            return ""
        return printable(f"progress {event['current'] or 0}/{event['total']} {event['message'] or ''}".rstrip())
    state, worker = event["state"], event["worker"]
    words = [f"{_mark(state)} {state.value}" if state.finished else state.value]
    if state is ExecutionState.SCHEDULED and event["when"] is not None:
        words.append(f"for {datetime.fromisoformat(event['when']).astimezone():%Y-%m-%d %H:%M:%S}")
    if worker is not None:
        words.append(f"on {worker}")
    if state.finished and event["started_at"] and event["completed_at"]:
        took = datetime.fromisoformat(event["completed_at"]) - datetime.fromisoformat(event["started_at"])
        words.append(f"after {format_duration(took.total_seconds())}")
    if event["error"] is not None:
        words.append(f"({event['error']})")
    return printable(" ".join(words))


STYLES = {
    ExecutionState.SCHEDULED: "magenta",
    ExecutionState.QUEUED: "yellow",
    ExecutionState.RUNNING: "cyan",
    ExecutionState.COMPLETED: "green",
    ExecutionState.FAILED: "red",
    ExecutionState.CANCELLED: "red",
}


class ProgressBar:
    """Shows the events of a task."""

    def __init__(self, function: str, key: str) -> None:
        self._bar = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[message]}"),
            TimeElapsedColumn(),
            console=Console(),
            expand=True,
        )
        self._name = f"{escape(printable(function))} [dim]{escape(printable(key))}[/dim]"
        self._task = self._bar.add_task(self._name, total=None, message="")
        self._bar.start()

    def show(self, event: StateEvent | ProgressEvent) -> None:
        if event["type"] == "progress":
            if event["current"] is not None or event["message"] is not None:
                message = escape(printable(event["message"] or ""))
                self._bar.update(self._task, total=event["total"], completed=event["current"] or 0, message=message)
            return
        state = event["state"]
        where = f" on {escape(printable(event['worker']))}" if event["worker"] else ""
        description = f"[{STYLES[state]}]{state.value}[/] {self._name}[dim]{where}[/dim]"
        self._bar.update(self._task, description=description)
        if state is ExecutionState.COMPLETED:
            total = self._bar.tasks[0].total
            self._bar.update(self._task, total=total or 1, completed=total or 1)

    def close(self) -> None:
        self._bar.stop()
