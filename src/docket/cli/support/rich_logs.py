"""The log and the banner of a worker on a terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.traceback import Traceback

import docket.worker
from docket._version import __version__
from docket.cli.support.logs import LogClock
from docket.cli.support.output import printable
from docket.cli.support.standard_output import discard_output
from docket.model.texts import escaped_lines

_RESET, _DIM = "\x1b[0m", "\x1b[2m"
_LEVELS = {
    "DEBUG": "\x1b[32m",
    "INFO": "\x1b[34m",
    "WARNING": "\x1b[33m",
    "ERROR": "\x1b[1;31m",
    "CRITICAL": "\x1b[1;7;31m",
}
# The signs at the beginning of docket's messages: start, retry, end, next run, cancelled.
_SIGNS = {"↪": "\x1b[36m", "↬": "\x1b[33m", "↩": "\x1b[32m", "↫": "\x1b[33m", "✗": "\x1b[31m", "🗙": "\x1b[31m"}


class LogConsole(Console):
    def on_broken_pipe(self) -> None:
        """Continues without a log when its reader closes the pipe. Rich would end the process."""
        self.quiet = True
        discard_output()


class RichLines(logging.Formatter):
    """Coloured lines. Rich draws the tracebacks; it would take a hundred times as long for a plain
    line."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._console = LogConsole()
        self._colours = self._console.color_system is not None
        self._prefix = prefix
        self._clock = LogClock("%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        message = escaped_lines(f"{self._prefix}{record.getMessage()}")
        time, level = self._clock.text(record.created), f"{record.levelname:<8}"
        if self._colours:
            time, level = f"{_DIM}{time}{_RESET}", f"{_LEVELS.get(record.levelname, '')}{level}{_RESET}"
            if colour := _SIGNS.get(message[:1]):
                message = f"{colour}{message[:1]}{_RESET}{message[1:]}"
        line = f"{time} {level} {message}"
        if record.exc_info and record.exc_info[1] is not None:
            line = f"{line}\n{self._traceback(record.exc_info[1])}"
        return line

    def _traceback(self, error: BaseException) -> str:
        drawn = Traceback.from_exception(
            type(error),
            error,
            error.__traceback__,
            max_frames=20,
            # Frames of the worker do not help the author of a task.
            suppress=[docket.worker],
        )
        with self._console.capture() as captured:
            self._console.print(drawn)
        return captured.get().rstrip("\n")


def show_banner(rows: Iterable[tuple[str, str]]) -> None:
    facts = Table.grid(padding=(0, 2))
    for name, value in rows:
        facts.add_row(Text(name, style="dim"), Text(printable(value)))
    panel = Panel(facts, title=f"docket {__version__}", title_align="left", border_style="cyan", expand=False)
    LogConsole(highlight=False).print(panel)
