"""The child's end of the pipe to its worker."""

from __future__ import annotations

import logging
import socket
import threading
from typing import Any

from .messages import FrameReader, MessageKind, frame

_CHUNK = 1 << 16
_PLAIN = (str, int, float, bool, type(None))


class WorkerGone(Exception):
    """The worker has closed its end of the pipe."""


class Pipe:
    """Sends and receives messages. Any thread of the function may send."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = FrameReader()
        self._received: list[list[Any]] = []
        self._lock = threading.Lock()

        # Whether the function has forked this process (forks.py).
        self.is_of_copy: bool = False

    def let_go(self) -> None:
        """In a process that the function has forked: the pipe belongs to the original."""
        self.is_of_copy = True
        # Another thread of the original may have held the lock during the fork.
        self._lock = threading.Lock()
        self._connection.close()

    def check_is_ours(self) -> None:
        """Raises RuntimeError in a process that the function has forked."""
        if self.is_of_copy:
            raise RuntimeError(
                "this process was forked by the function of a task, so it has no connection to the worker: "
                "use progress and run_async() in the process of the function itself"
            )

    def send(self, kind: MessageKind, *fields: Any) -> None:
        self.check_is_ours()
        data = frame(kind, *fields)
        with self._lock:
            self._connection.sendall(data)

    def receive(self) -> list[Any]:
        """The next message. Raises WorkerGone at the end of the pipe."""
        while not self._received:
            data = self._connection.recv(_CHUNK)
            if not data:
                raise WorkerGone
            self._received += self._reader.feed(data)
        return self._received.pop(0)


class PipeHandler(logging.Handler):
    """Sends log records to the worker, whose handlers write them. A process that the function has
    forked has no worker, and writes to standard error."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self._pipe = pipe
        self._without_worker = logging.StreamHandler()
        self._without_worker.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if self._pipe.is_of_copy:
            self._without_worker.handle(record)
            return
        try:
            fields = dict(vars(record), msg=record.getMessage(), args=None, exc_info=None)
            if record.exc_info and not record.exc_text:
                fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
            shown = {name: value if isinstance(value, _PLAIN) else repr(value) for name, value in fields.items()}
            self._pipe.send(MessageKind.LOG, shown)
        except OSError:
            # The worker is gone, and so is this process in a moment.
            pass
        except Exception:
            self.handleError(record)
