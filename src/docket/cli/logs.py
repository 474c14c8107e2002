"""The formats of a worker's log: for people, for pipes, for programs."""

from __future__ import annotations

import enum
import importlib
import logging
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from docket.cli.log_writer import LogWriter, WriterStream
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
    stream = sys.stdout
    handler = LogLines(stream, _formatter(format, worker))
    root.handlers[:] = [handler]
    root.setLevel(level.value)
    sys.stdout = handler.stream
    try:
        yield
    finally:
        root.handlers[:], level_before = before
        root.setLevel(level_before)
        sys.stdout = stream
        handler.close()


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


def _formatter(format: Format, worker: str | None) -> logging.Formatter:
    if format is Format.JSON:
        return JsonLines(worker)
    prefix = "" if worker is None else f"[{worker}] "
    if format is Format.RICH:
        # Imported lazily: only a terminal needs Rich.
        return importlib.import_module("docket.cli.rich_logs").RichLines(prefix)
    return PlainLines(prefix)


class LogLines(logging.Handler):
    """Formats records at once, and writes their lines to a stream in batches."""

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._writer = LogWriter(stream, self._report_dropped)
        # The same stream, for other writers that must keep the order of the lines.
        self._stream = WriterStream(stream, self._writer)
        self.stream: TextIO = cast(TextIO, self._stream)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.write(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        self._stream.flush_all()
        self._writer.flush()

    def close(self) -> None:
        self.flush()
        super().close()

    def _report_dropped(self, count: int) -> str:
        text = f"{count:,} lines are missing here: the reader of the log was too slow, or they could not be written"
        record = logging.LogRecord("docket.log", logging.WARNING, __file__, 0, text, (), None)
        return f"{self.format(record)}\n"


class SafeLines(logging.Formatter):
    """Lines without characters that control a terminal: messages contain texts of users."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped_lines(super().format(record))


class PlainLines(SafeLines):
    """`2026-11-17 06:39:53,123 INFO    docket.worker: …`"""

    def __init__(self, prefix: str = "") -> None:
        super().__init__(f"%(asctime)s %(levelname)-7s {prefix.replace('%', '%%')}%(name)s: %(message)s")
        self._prefix = prefix
        self._clock = LogClock("%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        if record.exc_info or record.exc_text or record.stack_info:
            return super().format(record)
        line = (
            f"{self._clock.text(record.created)},{int(record.msecs):03d} {record.levelname:<7} "
            f"{self._prefix}{record.name}: {record.getMessage()}"
        )
        return line if line.isprintable() else escaped_lines(line)


class LogClock:
    """The time of a line. The lines of one second share its text."""

    def __init__(self, pattern: str, split: Callable[[float], time.struct_time] = time.localtime) -> None:
        self._pattern = pattern
        self._split = split
        self._second, self._text = -1, ""

    def text(self, created: float) -> str:
        second = int(created)
        if second != self._second:
            self._text = time.strftime(self._pattern, self._split(second))
            self._second = second
        return self._text


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
        self._local = LogClock("%Y-%m-%d %H:%M:%S")
        self._utc = LogClock("%Y-%m-%dT%H:%M:%S", time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        trace = self.formatException(record.exc_info) if record.exc_info else None
        milliseconds = f"{int(record.msecs):03d}"
        line: dict[str, Any] = {
            "asctime": f"{self._local.text(record.created)},{milliseconds}",
            "name": record.name,
            "levelname": record.levelname,
            "message": record.getMessage(),
            "exc_info": trace,
            "timestamp": f"{self._utc.text(record.created)}.{milliseconds}+00:00",
            "level": record.levelname,
            "logger": record.name,
            **self._every_line,
        }
        if trace is not None:
            line["exception"] = trace
        line.update((name, value) for name, value in record.__dict__.items() if name not in _STANDARD)
        return as_json_line(line)
