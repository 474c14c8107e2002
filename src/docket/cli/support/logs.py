"""The log of a worker: its formats for people, pipes and programs, and a writer that never blocks
the worker."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import importlib
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TextIO, cast

from docket.cli.support.standard_output import discard_output
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
        return importlib.import_module("docket.cli.support.rich_logs").RichLines(prefix)
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


# The most characters that wait for a slow reader.
MOST_WAITING = 8 * 1024 * 1024
# How long a thread waits for a slow reader before its line is dropped. The event loop never waits.
PATIENCE_SECONDS = 1.0
# How long the end of the log waits for a reader that reads nothing at all.
LAST_PATIENCE_SECONDS = 5.0
# The most characters of a line that wait for its end.
LONGEST_BEGUN = 64 * 1024


class LogWriter:
    """Lines that wait for a stream, and the thread that writes them. `report` makes the line that
    says how many lines were dropped."""

    def __init__(self, stream: TextIO, report: Callable[[int], str]) -> None:
        self._target = LogTarget(stream)
        self._report = report
        self._reset()
        # Whether each line is written at once, by the thread that logs it.
        self._is_direct = False
        _writers.add(self)

    def _reset(self) -> None:
        self._lines: list[str] = []
        self._size = 0
        self._dropped = 0
        # Lines that could not be written. They are reported before the next ones.
        self._lost = 0
        # How much was written when `flush` gave up.
        self._stuck_at = -1
        self._is_writing = self._is_hurried = False
        # `with` on a condition is a call in Python, and on its lock it is not.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    def write(self, line: str) -> None:
        """Adds a line, which ends with a line break. Does not wait for the stream, unless the
        reader is so slow that no more lines fit."""
        with self._lock:
            if self._is_direct:
                self._target.put(line)
                return
            if self._size >= MOST_WAITING and not self._wait_for_room():
                self._dropped += 1
                return
            if not self._lines:
                self._wake_up()
            self._lines.append(line)
            self._size += len(line)

    def hurry(self) -> None:
        """Writes what waits soon, without waiting for it."""
        with self._changed:
            if self._lines:
                self._is_hurried = True
                self._changed.notify_all()

    def flush(self) -> None:
        """Returns when all lines are written, or when the reader has read nothing for some
        seconds: a reader that has stopped must not keep a process from ending."""
        if self._thread is None or self._thread is threading.current_thread():
            return
        with self._changed:
            while self._has_work() and self._target.written != self._stuck_at:
                before = self._target.written
                self._is_hurried = True
                self._changed.notify_all()
                is_done = self._changed.wait_for(lambda: not self._has_work(), LAST_PATIENCE_SECONDS)
                if not is_done and self._target.written == before:
                    self._stuck_at = before

    def _has_work(self) -> bool:
        return bool(self._lines or self._is_writing or self._dropped)

    def forget(self) -> None:
        """After a fork, in the child: the waiting lines are the parent's, and so is the thread."""
        self._reset()
        self._target.forget()
        self._is_direct = True

    def _wait_for_room(self) -> bool:
        if asyncio._get_running_loop() is not None:  # pyright: ignore[reportPrivateUsage]
            return False
        return self._changed.wait_for(lambda: self._size < MOST_WAITING, PATIENCE_SECONDS)

    def _wake_up(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="docket - log", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._dropped)
                # Further lines come soon, and share the write.
                self._changed.wait_for(lambda: self._is_hurried, COLLECT_SECONDS)
                lines, dropped, self._lines, self._dropped = self._lines, self._dropped, [], 0
                self._is_writing, self._is_hurried = True, False
            self._put(lines, dropped)
            with self._changed:
                self._size = sum(map(len, self._lines))
                self._is_writing = False
                self._changed.notify_all()

    def _put(self, lines: list[str], dropped: int) -> None:
        if self._lost and self._target.put(self._report(self._lost)):
            self._lost += len(lines) + dropped
            return
        self._lost = self._target.put("".join(lines))
        if self._lost:
            self._lost += dropped
        elif dropped and self._target.put(self._report(dropped)):
            self._lost = dropped


class WriterStream:
    """Standard output while a log writes to it: `print` takes the way of the log's lines, so that
    both keep their order. Everything else is that of the stream.

    `print` writes a line in pieces. They wait here until the line ends, so that no line of another
    thread or process comes between them.
    """

    def __init__(self, stream: TextIO, writer: LogWriter) -> None:
        self._stream = stream
        self._writer = writer
        # The line that each thread has begun.
        self._begun: dict[int, str] = {}
        _streams.add(self)

    def write(self, text: str) -> int:
        thread = threading.get_ident()
        whole = self._begun.pop(thread, "") + text
        end = len(whole) if len(whole) > LONGEST_BEGUN else whole.rfind("\n") + 1
        if end:
            self._writer.write(whole[:end])
        if end < len(whole):
            self._begun[thread] = whole[end:]
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        self._pass_on(threading.get_ident())
        self._writer.hurry()

    def flush_all(self) -> None:
        """Passes on what every thread has begun."""
        for thread in list(self._begun):
            self._pass_on(thread)

    def _pass_on(self, thread: int) -> None:
        if begun := self._begun.pop(thread, ""):
            self._writer.write(begun)

    def forget(self) -> None:
        """After a fork, in the child: the lines that other threads have begun are the parent's."""
        self._begun.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_writers: weakref.WeakSet[LogWriter] = weakref.WeakSet()
_streams: weakref.WeakSet[WriterStream] = weakref.WeakSet()


def _forget_all() -> None:
    for writer in list(_writers):
        writer.forget()
    for stream in list(_streams):
        stream.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


# Lines are collected for this long. A process that is killed loses the lines of this time.
COLLECT_SECONDS = 0.02
# The most bytes of one write. Whoever waits sees after each of them that the reader still reads.
_PIECE = 64 * 1024


class LogTarget:
    """A stream that lines are written to."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._file = _file_of(stream)
        # Bytes so far.
        self.written: int = 0
        # Whether the last bytes are a line that could not be finished.
        self._is_torn = False

    def forget(self) -> None:
        """After a fork, in the child: a line that the parent has begun is the parent's."""
        self._is_torn = False

    def put(self, text: str) -> int:
        """Writes the text, and returns how many lines of it are lost."""
        if self._file is None:
            return self._put_into_stream(text)
        data = memoryview(text.encode(self._stream.encoding or "utf-8", self._stream.errors or "backslashreplace"))
        if self._is_torn:
            data = memoryview(b"\n" + data)
        start = 0
        while start < len(data):
            try:
                start += os.write(self._file, data[start : start + _PIECE])
                self.written += 1
            except BlockingIOError:
                # Somebody who shares the output has set it so that writes do not wait.
                time.sleep(COLLECT_SECONDS)
            except BrokenPipeError:
                # The reader has gone (`docket worker | head -1`): the worker goes on without a log.
                discard_output(self._file)
                return 0
            except OSError:
                # The disk is full, or the output was closed. The next lines may fare better.
                if start:
                    self._is_torn = data[start - 1] != _LINE_BREAK
                time.sleep(COLLECT_SECONDS)
                return max(bytes(data[start:]).count(b"\n"), 1)
        self._is_torn = False
        return 0

    def _put_into_stream(self, text: str) -> int:
        try:
            self._stream.write(text)
            self._stream.flush()
            self.written += 1
        except (OSError, ValueError):
            time.sleep(COLLECT_SECONDS)
        return 0


_LINE_BREAK = ord("\n")


def _file_of(stream: TextIO) -> int | None:
    """The file descriptor of a stream. Tests replace standard output by streams that have none,
    and Windows has other line breaks."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if os.name == "posix":
            stream.flush()
            return stream.fileno()
    return None
