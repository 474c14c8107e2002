"""Writes the lines of a log in batches, from a thread of its own.

A write of its own for each line would cost more than the task that the line is about, and a reader
that is too slow would stop the event loop. A process that a task forks writes each line at once: it
may end at any moment, and without a word (`os._exit`, as `multiprocessing` does).
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from docket.cli.log_target import COLLECT_SECONDS, LogTarget

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
