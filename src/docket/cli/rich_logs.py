"""Formats log lines for a terminal."""

from __future__ import annotations

import logging

from rich.console import Console
from rich.traceback import Traceback

import docket.worker
from docket.cli.logs import LogClock
from docket.cli.standard_output import discard_output
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
