"""A connection on which many calls may be under way:
requests go out as they come, answers arrive in that order.

redis-py opens the connection (TLS, login, database, protocol) and gives its transport away. Its own
way of reading costs more turns of the event loop, a time-out per command, and a connection per
command under way (docs/design/performance.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as RedisTimeoutError

from .faults import mark_sent
from .replies import error_parser

Words = tuple[bytes | str | int, ...]
# Its stub knows commands of one word only.
_pack = cast(Callable[[Words], bytes], cast(Any, hiredis).pack_command)
_NOTHING = object()
# A link that carries less counts as dead, unless something is seen to move on it.
SLOWEST_BYTES_PER_SECOND = 256 * 1024
# Of larger requests it is noted how much of them still waits in this process.
_LARGE = 64 * 1024
# After code that blocked the event loop both an answer and
# the end of our patience are there: the answer counts.
_LATE_SECONDS = 0.1


class Pipeline(asyncio.Protocol):
    """Takes over a redis-py connection. `on_message` gets what the server says unasked, on a
    connection that listens."""

    def __init__(self, connection: Any, on_message: Callable[[list[Any]], None] | None = None) -> None:
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=error_parser(connection._parser),
            notEnoughData=_NOTHING,
        )
        # Per request: when its answer counts as late, on the loop's clock, who waits for it, its
        # bytes, the caller's patience.
        self._open: deque[tuple[float, asyncio.Future[Any], int, float]] = deque()
        # Bytes of the requests that are not answered yet, and
        # how many of them waited here when we last looked.
        self._unanswered = self._unsent = 0
        self._watch: asyncio.TimerHandle | None = None
        self.heard_at: float = self._loop.time()
        self._closing = False
        self.trouble: Exception | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        # It closes its transport when it is forgotten.
        self._writer = connection._writer
        self._transport: asyncio.Transport = self._writer.transport
        self._before: asyncio.BaseProtocol = self._transport.get_protocol()
        self._transport.set_protocol(self)
        # It is ours now; redis-py's object shall neither use nor close it.
        connection._reader = connection._writer = None
        if self._transport.is_closing():
            self._end(RedisConnectionError("the server closed the connection"))

    def ask(self, words: Words, patience: float) -> asyncio.Future[Any]:
        """Sends a command. An answer that is an error is
        raised; one that is late ends the connection."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.trouble is not None:
            future.set_exception(type(self.trouble)(*self.trouble.args))
            return future
        # First of all: words that cannot be packed must not
        # leave somebody behind who waits for an answer.
        packed = _pack(words)
        size = len(packed)
        self._unanswered += size
        deadline = self._loop.time() + patience + self._unanswered / SLOWEST_BYTES_PER_SECOND
        self._open.append((deadline, future, size, patience))
        self._transport.write(packed)
        if size > _LARGE:
            self._unsent = self._transport.get_write_buffer_size()
        if self._watch is not None and self._watch.when() > deadline:
            self._watch.cancel()
            self._watch = None
        if self._watch is None:
            self._watch = self._loop.call_at(deadline, self._look_at_clock)
        return future

    def tell(self, *words: bytes | str | int) -> None:
        """Sends a command whose answer, if there is one, is a message."""
        if self.trouble is None:
            self._transport.write(_pack(words))

    def close(self) -> None:
        """What is under way is not answered any more."""
        self._end(RedisConnectionError("the connection was closed"))

    def close_when_idle(self) -> None:
        self._closing = True
        if not self._open:
            self.close()

    # What the transport calls

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        self.heard_at = self._loop.time()
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                if self._on_message is not None:
                    self._on_message(reply)
                else:
                    self._answer(reply)
        except Exception as error:
            # A listener tells why it does not go on; an answer
            # that cannot be read is the connection's fault.
            listens = self._on_message is not None
            self._end(error if listens else RedisConnectionError(f"an answer cannot be read: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._before.connection_lost(exc)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        self._end(RedisConnectionError(str(exc) if exc is not None else "the server closed the connection"))

    def eof_received(self) -> None:
        self._end(RedisConnectionError("the server closed the connection"))

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    # Inside

    def _answer(self, reply: Any) -> None:
        _, future, size, _ = self._open.popleft()
        self._unanswered -= size
        if not future.done():
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)
        if self._closing and not self._open:
            self.close()

    def _look_at_clock(self, late: bool = False) -> None:
        self._watch = None
        if not self._open:
            return
        left = self._seconds_left()
        if left > 0:
            self._watch = self._loop.call_later(left, self._look_at_clock)
        elif not late:
            self._watch = self._loop.call_later(_LATE_SECONDS, self._look_at_clock, True)
        else:
            self._end(RedisTimeoutError("no answer in time"))

    def _seconds_left(self) -> float:
        """Until the first request counts as late: not while its
        answer arrives, nor while bytes leave this process."""
        deadline, _, _, patience = self._open[0]
        left = max(deadline, self.heard_at + patience) - self._loop.time()
        if left <= 0 and self._unsent:
            before, self._unsent = self._unsent, self._transport.get_write_buffer_size()
            if self._unsent < before:
                return patience + self._unanswered / SLOWEST_BYTES_PER_SECOND
        return left

    def _end(self, trouble: Exception) -> None:
        if self.trouble is not None:
            return
        self.trouble = trouble
        if self._open:
            self._drop_unsent()
        if self._loop.is_closed():
            # Nobody waits any more, and the connection goes with its transport.
            return
        if self._watch is not None:
            self._watch.cancel()
        while self._open:
            future = self._open.popleft()[1]
            if not future.done():
                future.set_exception(mark_sent(type(trouble)(*trouble.args)))
                # One that was given up by its caller must not be complained about.
                future.exception()
        self._transport.abort()
        if not self.ended.done():
            self.ended.set_result(None)

    def _drop_unsent(self) -> None:
        """What is still on its way in this machine is not delivered
        any more: it must not arrive after a repeat of it."""
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def stay(pipeline: Pipeline, silence: float) -> None:
    """Raises what ended a connection that listens. After so many seconds without a word it has to
    prove that it lives, within the same time."""
    loop = asyncio.get_running_loop()
    while pipeline.trouble is None:
        heard_at = pipeline.heard_at
        await asyncio.wait([pipeline.ended], timeout=max(heard_at + silence - loop.time(), 0))
        if pipeline.trouble is None and pipeline.heard_at == heard_at:
            pipeline.tell("PING")
            await asyncio.wait([pipeline.ended], timeout=silence)
            if pipeline.trouble is None and pipeline.heard_at == heard_at:
                raise RedisTimeoutError("the subscription connection does not answer")
    raise pipeline.trouble
