"""How a worker's log lines look: for people, for pipes, for programs."""

from __future__ import annotations

import enum
import importlib
import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any


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
    """Colours for a terminal, plain lines for everything else."""
    return Format.RICH if sys.stderr.isatty() else Format.PLAIN


@contextmanager
def logging_to_stderr(level: Level, format: Format) -> Generator[None]:
    """All logging of this process goes to standard error, in one format; afterwards it is as it was."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers[:] = [_handler(format)]
    root.setLevel(level.value)
    try:
        yield
    finally:
        root.handlers[:], level_before = before
        root.setLevel(level_before)


@contextmanager
def docket_logs_only(level: Level) -> Generator[None]:
    """Of docket's own logging, only what is as grave as this is seen."""
    own = logging.getLogger("docket")
    before = own.level
    own.setLevel(level.value)
    try:
        yield
    finally:
        own.setLevel(before)


def _handler(format: Format) -> logging.Handler:
    if format is Format.RICH:
        # Loaded by name: the highlighter and its like are of use on a terminal only.
        return importlib.import_module("docket.cli.rich_logs").rich_handler()
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if format is Format.JSON else plain)
    return handler


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """One object per line: what every record has, whatever `extra` brought along, and the traceback as text."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in record.__dict__.items() if name not in _STANDARD)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)
