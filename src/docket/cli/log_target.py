"""Where the lines of a log go: standard output, without the buffers of Python's streams.

A process that forks copies these buffers, and the locks around them, in whatever state they are.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TextIO

from docket.cli.standard_output import discard_output

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
