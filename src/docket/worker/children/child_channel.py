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
        self,
        connection: socket.socket,
        receive: Callable[[list[Any]], None],
        broken: Callable[[Exception], None],
        has_read: Callable[[], None] = lambda: None,
    ) -> None:
        """`broken` is called if bytes arrive that are not a message, `has_read` after the event
        loop has read what arrived."""
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._receive = receive
        self._broken = broken
        self._has_read = has_read
        self._frames = FrameReader()
        # Those that have arrived. A handler of one message may call `read`.
        self._messages: deque[list[Any]] = deque()
        self._unsent = bytearray()
        # Whether `flush` will be called: in this turn of the event loop, or when there is room.
        self._will_flush = self._waits_for_room = False
        self._is_open = True
        # Whether the child has closed its end.
        self._is_over = False
        self._is_paused = False
        connection.setblocking(False)
        self._loop.add_reader(connection, self._read_and_tell)

    def send(self, kind: MessageKind, *fields: Any) -> None:
        """Sends a message at the end of this turn of the event loop, together with others: each
        write wakes the child."""
        if not self._is_open:
            return
        self._unsent += frame(kind, *fields)
        if not self._will_flush:
            self._will_flush = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Sends what was not sent yet, as far as there is room."""
        self._will_flush = self._waits_for_room
        if not self._is_open or not self._unsent:
            return
        del self._unsent[: self._write()]
        if bool(self._unsent) != self._waits_for_room:
            self._waits_for_room = self._will_flush = bool(self._unsent)
            if self._waits_for_room:
                self._loop.add_writer(self._connection, self.flush)
            else:
                self._loop.remove_writer(self._connection)

    def _write(self) -> int:
        try:
            return self._connection.send(self._unsent)
        except BlockingIOError:
            return 0
        except OSError:
            # The child is gone; whoever waits for its end acts on it.
            return len(self._unsent)

    @property
    def is_amid_message(self) -> bool:
        return self._frames.is_amid_message

    def pause(self) -> None:
        """The event loop does not read any more, until `resume`."""
        if self._is_open and not self._is_over and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._connection)

    def resume(self) -> None:
        if self._is_open and not self._is_over and self._is_paused:
            self._is_paused = False
            self._loop.add_reader(self._connection, self._read_and_tell)

    def _read_and_tell(self) -> None:
        self.read()
        self._has_read()

    def read(self) -> bool:
        """Passes on all messages that have arrived, without waiting for more. False if there are
        none."""
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
                self._is_over = True
                self._loop.remove_reader(self._connection)
                break
            self._take_apart(data)
            is_more = len(data) == _CHUNK
        has_messages = bool(self._messages)
        while self._messages:
            message = self._messages.popleft()
            try:
                self._receive(message)
            except Exception as error:
                self._broken(error)
        return has_messages

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
