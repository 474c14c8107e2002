"""Draws the live state of a docket on a terminal of any size."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from docket.cli.support.output import ago, printable
from docket.dependencies import format_duration
from docket.docket import WorkerInfo
from docket.inspection.live import LiveState, RecentFailure, Running
from docket.inspection.statistics import Stats, failing
from docket.model.places import RARE_PLACES, UNFINISHED_PLACES, Place, words_of
from docket.model.times import from_ms

BLOCKS = " ▁▂▃▄▅▆▇█"
BAR_WIDTH = 24


class TopScreen:
    """Draws the state of an observer. The tables share the height of the terminal."""

    def __init__(self, title: str, state: LiveState, hint: str = "") -> None:
        self.title = title
        self.hint = hint
        self.caption = ""
        self.foot = ""
        self._state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.height
        state = self._state
        room = max(height - 11, 6)
        failures = list(state.failures)[-max(room // 4, 2) :]
        workers = state.workers[: max(room // 4, 2)]
        running = state.running[: max(room - len(failures) - len(workers), 2)]
        yield self._head()
        if self.caption:
            yield Text(printable(self.caption), style="bold cyan", no_wrap=True, overflow="ellipsis")
        yield _counts(state)
        yield _rates(state, options.max_width)
        if state.unknown:
            yield _unknown(state)
        if state.recent is not None and state.recent.total.failures:
            yield _failing(state.recent)
        yield _section(
            f"Running {_of(len(running), state.census.running if state.census else 0)}", _running(running, state.now)
        )
        yield _section(f"Workers {_of(len(workers), len(state.workers))}", _workers(workers, state))
        yield _section("Failures since the start", _failures(failures))
        if self.foot:
            yield Text(printable(self.foot), style="dim", no_wrap=True, overflow="ellipsis")

    def _head(self) -> RenderableType:
        line = Table.grid(expand=True)
        line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        line.add_column(justify="right", no_wrap=True)
        clock = f"{datetime.now():%H:%M:%S}"
        line.add_row(Text(self.title, style="bold"), Text(f"{self.hint}  {clock}" if self.hint else clock, style="dim"))
        if self._state.trouble is None:
            return line
        return Group(line, Text(printable(f"no answer: {self._state.trouble}"), style="bold red", no_wrap=True))


_STYLES = {Place.RUNNING: "cyan", Place.SCHEDULED: "magenta", Place.UNKNOWN_FUNCTION: "red"}


def _counts(state: LiveState) -> RenderableType:
    census = state.census
    if census is None:
        return Text("…")
    parts = [
        (words_of(place).now, census.at(place), _STYLES.get(place, "yellow"))
        for place in UNFINISHED_PLACES
        if place not in RARE_PLACES or census.at(place)
    ]
    if census.dead:
        parts.append(("dead letters", census.dead, "red"))
    line = Text()
    for name, count, style in parts:
        line.append(f"{count:,}", style=f"bold {style}")
        line.append(f" {name}   ")
    if census.oldest_ready_ms is not None and census.ready:
        line.append(
            f"oldest ready for {format_duration(max(census.server_ms - census.oldest_ready_ms, 0) / 1000)}",
            style="dim",
        )
    return line


def _failing(recent: Stats) -> RenderableType:
    functions = (f"{one.function} ({one.failed:,} failed, {one.retried:,} retried)" for one in failing(recent))
    text = printable(f"failing in the last 5 minutes: {', '.join(functions)}")
    return Text(text, style="red", no_wrap=True, overflow="ellipsis")


def _unknown(state: LiveState) -> RenderableType:
    functions = (
        f"{function.name} ({function.tasks:,}, first {ago(from_ms(function.since_ms), state.now)})"
        for function in state.unknown
    )
    text = printable(f"functions that no worker knows: {', '.join(functions)}")
    return Text(text, style="bold red", no_wrap=True, overflow="ellipsis")


def _rates(state: LiveState, width: int) -> RenderableType:
    if state.refused is not None:
        # Its end says what is missing, so it is shown whole.
        return Text(printable(f"no rates and no failures: {state.refused}"), style="bold red")
    rates = state.rates
    line = Text()
    for name, rate, style in (
        ("done", rates.ended, "green"),
        ("failed", rates.failed, "red"),
        ("added", rates.added, ""),
    ):
        line.append(f"{rate:,.0f}/s", style=f"bold {style}")
        line.append(f" {name}   ")
    room = max(min(width - len(line), 60), 0)
    line.append(sparkline(list(state.ended_rates)[-room:] if room else []), style="green")
    return line


def sparkline(values: Sequence[float]) -> str:
    most = max(values, default=0.0)
    if most <= 0:
        return ""
    # A small value still shows a small block; only zero is blank.
    return "".join(BLOCKS[max(round(value / most * (len(BLOCKS) - 1)), 1 if value > 0 else 0)] for value in values)


def _of(shown: int, all: int) -> str:
    return f"({all:,})" if shown >= all else f"({shown} of {all:,})"


def _section(title: str, body: RenderableType | None) -> RenderableType:
    return Group(Rule(title, align="left", style="dim"), body or Text("none", style="dim"))


def _grid() -> Table:
    return Table(box=None, show_header=False, pad_edge=False, expand=True)


def _running(tasks: Sequence[Running], now: datetime) -> RenderableType | None:
    if not tasks:
        return None
    table = _grid()
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=3)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=3, style="dim")
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=2)
    table.add_column(no_wrap=True, justify="right", min_width=6)
    table.add_column(no_wrap=True, width=BAR_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=3, style="dim")
    for task in tasks:
        name = Text(printable(task.function), style="bold")
        if task.arguments:
            name.append(f"({printable(task.arguments)})")
        if task.attempt > 1:
            name.append(f" (attempt {task.attempt})", style="yellow")
        took = format_duration(max((now - task.started).total_seconds(), 0))
        table.add_row(name, printable_text(task.key), printable_text(task.worker), took, _bar(task), _message(task))
    return table


def _bar(task: Running) -> RenderableType:
    if task.current is None:
        return Text("")
    return ProgressBar(total=task.total, completed=task.current, width=BAR_WIDTH)


def _message(task: Running) -> Text:
    if task.current is None and not task.message:
        return Text("")
    return printable_text(f"{task.current or 0}/{task.total} {task.message or ''}")


def _workers(workers: Sequence[WorkerInfo], state: LiveState) -> RenderableType | None:
    if not workers:
        return None
    table = _grid()
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=2)
    table.add_column(no_wrap=True, min_width=10)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=5, style="dim")
    for worker in workers:
        names = ", ".join(sorted(worker.tasks))
        table.add_row(printable_text(worker.name), f"seen {ago(worker.last_seen, state.now)}", printable_text(names))
    return table


def _failures(failures: Sequence[RecentFailure]) -> RenderableType | None:
    if not failures:
        return None
    table = _grid()
    table.add_column(no_wrap=True, width=8, style="dim")
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=2, style="bold")
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=2, style="dim")
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=5, style="red")
    for failure in reversed(failures):
        texts = (printable_text(text) for text in (failure.function, failure.key, failure.error))
        table.add_row(f"{failure.at:%H:%M:%S}", *texts)
    return table


def printable_text(text: str) -> Text:
    return Text(printable(text))
