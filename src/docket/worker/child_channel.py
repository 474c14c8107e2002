"""The worker's end of the pipe to a child."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from docket.child.messages import FrameReader, MessageKind, frame

logger: logging.Logger = logging.getLogger("docket.worker")

_CHUNK = 1 << 16


class ChildChannel:
    """Sends messages without waiting, and passes on those that arrive. The event loop reads it, and
    `read` does so at once."""

    def __init__(
        self, connection: socket.socket, receive: Callable[[list[Any]], None], broken: Callable[[Exception], None]
    ) -> None:
        """`broken` is called if bytes arrive that are not a message."""
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._receive = receive
        self._broken = broken
        self._frames = FrameReader()
        # Those that have arrived. A handler of one message may call `read`.
        self._messages: deque[list[Any]] = deque()
        self._unsent = bytearray()
        self._is_open = True
        connection.setblocking(False)
        self._loop.add_reader(connection, self.read)

    def send(self, kind: MessageKind, *fields: Any) -> None:
        if not self._is_open:
            return
        data = frame(kind, *fields)
        if not self._unsent:
            sent = self._write(data)
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.add_writer(self._connection, self._write_rest)
        self._unsent += data

    def _write(self, data: bytes | bytearray) -> int:
        try:
            return self._connection.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            # The child is gone; whoever waits for its end acts on it.
            return len(data)

    def _write_rest(self) -> None:
        del self._unsent[: self._write(self._unsent)]
        if not self._unsent:
            self._loop.remove_writer(self._connection)

    def read(self) -> None:
        """Passes on all messages that have arrived, without waiting for more."""
        is_more = self._is_open
        while is_more:
            try:
                data = self._connection.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                # The child has closed its end, which happens when it ends.
                self._loop.remove_reader(self._connection)
                break
            self._take_apart(data)
            is_more = len(data) == _CHUNK
        while self._messages:
            message = self._messages.popleft()
            try:
                self._receive(message)
            except Exception as error:
                self._broken(error)

    def _take_apart(self, data: bytes) -> None:
        try:
            self._messages.extend(self._frames.feed(data))
        except Exception as error:
            self._broken(error)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            with contextlib.suppress(OSError):
                self._connection.close()
