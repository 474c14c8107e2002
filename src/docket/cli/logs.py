"""The formats of a worker's log: for people, for pipes, for programs."""

from __future__ import annotations

import enum
import importlib
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

from docket.cli.standard_output import discard_output
from docket.model.texts import as_json_line, escaped_lines


class Level(enum.StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class Format(enum.StrEnum):
    RICH = "rich"
    PLAIN = "plain"
    JSON = "json"


def default_format() -> Format:
    """Coloured lines on a terminal, else plain lines."""
    return Format.RICH if sys.stdout.isatty() else Format.PLAIN


@contextmanager
def logging_to_stdout(level: Level, format: Format, worker: str | None = None) -> Generator[None]:
    """Sends all logging of this process to standard output in
    one format, and restores the previous handlers at the end.

    `worker` is a name for every line, if several processes share the output.
    """
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers[:] = [_handler(format, worker)]
    root.setLevel(level.value)
    try:
        yield
    finally:
        root.handlers[:], level_before = before
        root.setLevel(level_before)


@contextmanager
def docket_logs_only(level: Level) -> Generator[None]:
    """Suppresses docket's own log messages below this level."""
    own = logging.getLogger("docket")
    before = own.level
    own.setLevel(level.value)
    try:
        yield
    finally:
        own.setLevel(before)


def _handler(format: Format, worker: str | None) -> logging.Handler:
    if format is Format.JSON:
        handler = LogLines(sys.stdout)
        handler.setFormatter(JsonLines(worker))
        return handler
    prefix = "" if worker is None else f"[{worker}] ".replace("%", "%%")
    if format is Format.RICH:
        # Imported lazily: only a terminal needs the highlighter.
        handler = importlib.import_module("docket.cli.rich_logs").rich_handler()
        handler.setFormatter(SafeLines(f"{prefix}%(message)s"))
        return handler
    handler = LogLines(sys.stdout)
    handler.setFormatter(SafeLines(f"%(asctime)s %(levelname)-7s {prefix}%(name)s: %(message)s"))
    return handler


class SafeLines(logging.Formatter):
    """Lines without characters that control a terminal: messages contain texts of users."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped_lines(super().format(record))


class LogLines(logging.StreamHandler[TextIO]):
    """Writes lines to a stream. If the reader closes the pipe
    (`docket worker | head -1`), the worker continues without a log."""

    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exc_info()[1], BrokenPipeError):
            discard_output()
        else:
            super().handleError(record)


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """Writes one object per line: the standard fields of a
    record, its `extra` fields, and the traceback as text.

    The fields have the names of `logging`. `timestamp`, `level`, `logger` and `exception` repeat
    them under common names. `timestamp` includes its time zone, while `asctime` is local time. If
    several processes share the output, every line has the worker's name.
    """

    def __init__(self, worker: str | None = None) -> None:
        super().__init__()
        self._every_line = {} if worker is None else {"docket.worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        trace = self.formatException(record.exc_info) if record.exc_info else None
        line: dict[str, Any] = {
            "asctime": self.formatTime(record),
            "name": record.name,
            "levelname": record.levelname,
            "message": record.getMessage(),
            "exc_info": trace,
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            **self._every_line,
        }
        if trace is not None:
            line["exception"] = trace
        line.update((name, value) for name, value in record.__dict__.items() if name not in _STANDARD)
        return as_json_line(line)
