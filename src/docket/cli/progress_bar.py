"""Shows one task on a terminal, with a progress bar."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from docket.cli.output import printable
from docket.execution import ExecutionState, ProgressEvent, StateEvent

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
