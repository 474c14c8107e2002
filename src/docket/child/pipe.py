"""The child's end of the pipe to its worker."""

from __future__ import annotations

import logging
import select
import socket
import threading
from typing import Any

from .messages import FrameReader, Kind, frame

_CHUNK = 1 << 20
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

    def send(self, kind: Kind, *fields: Any) -> None:
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

    def has_news(self) -> bool:
        """Whether the worker has sent something, or has closed the pipe. During a run it sends
        nothing but the order to end."""
        return bool(select.select([self._connection], [], [], 0)[0])


class PipeHandler(logging.Handler):
    """Sends log records to the worker, whose handlers write them."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = dict(vars(record), msg=record.getMessage(), args=None, exc_info=None)
            if record.exc_info and not record.exc_text:
                fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
            shown = {name: value if isinstance(value, _PLAIN) else repr(value) for name, value in fields.items()}
            self._pipe.send(Kind.LOG, shown)
        except OSError:
            # The worker is gone, and so is this process in a moment.
            pass
        except Exception:
            self.handleError(record)
