"""A connection with many calls under way: requests go out at once, and answers arrive in the same
order.

redis-py opens the connection (TLS, login, database, protocol), and this class takes over its
transport. redis-py's own reader needs more turns of the event loop, a time-out per command, and one
connection per call under way (docs/design/performance.md).
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
from .redis_py import take_transport

Words = tuple[bytes | str | int, ...]
# The stub of hiredis accepts only commands of one word.
_pack = cast(Callable[[Words], bytes], cast(Any, hiredis).pack_command)
_NOTHING = object()
# A slower link counts as dead, unless bytes are seen to move on it.
SLOWEST_BYTES_PER_SECOND = 256 * 1024
# For larger requests the pipeline watches how many of their bytes are still unsent.
_LARGE = 64 * 1024
# After code that blocked the event loop, both an answer and the end of the patience may be there.
# The answer counts.
_LATE_SECONDS = 0.1


class Pipeline(asyncio.Protocol):
    """Takes over a redis-py connection. `on_message` gets the messages of a connection with
    subscriptions."""

    def __init__(self, connection: Any, on_message: Callable[[list[Any]], None] | None = None) -> None:
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._writer, parse_error, is_ended = take_transport(connection)
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=parse_error,
            notEnoughData=_NOTHING,
        )
        # Per request: the loop's time at which its answer counts as late, the caller's future, the
        # size in bytes, the caller's patience.
        self._open: deque[tuple[float, asyncio.Future[Any], int, float]] = deque()
        # Bytes of unanswered requests, and how many of them were unsent at the last check.
        self._unanswered = self._unsent = 0
        self._watch: asyncio.TimerHandle | None = None
        self.received_at: float = self._loop.time()
        self._closing = False
        # The digests of scripts whose source was sent on this connection, where that is noted.
        self.scripts: set[str] = set()
        self.trouble: Exception | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport = self._writer.transport  # pyright: ignore[reportAttributeAccessIssue]
        self._before: asyncio.BaseProtocol = self._transport.get_protocol()
        self._transport.set_protocol(self)
        if is_ended or self._transport.is_closing():
            self._end(RedisConnectionError("the server closed the connection"))

    def ask(self, words: Words, patience: float) -> asyncio.Future[Any]:
        """Sends a command. An error in the answer is raised. A late answer ends the connection."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.trouble is not None:
            future.set_exception(type(self.trouble)(*self.trouble.args))
            return future
        # Pack before queuing the future: a packing error must not leave a waiter behind.
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
            self._watch = self._loop.call_at(deadline, self._check_deadline)
        return future

    def send(self, *words: bytes | str | int) -> None:
        """Sends a command whose answer, if any, is a message."""
        if self.trouble is None:
            self._transport.write(_pack(words))

    def close(self) -> None:
        """Closes the connection. Calls under way get no answer."""
        self._end(RedisConnectionError("the connection was closed"))

    def close_when_idle(self, within: float | None = None) -> None:
        """Closes the connection when all calls under way are answered; at the latest `within`
        seconds from now."""
        self._closing = True
        if not self._open or within == 0:
            self.close()
        elif within is not None:
            self._loop.call_later(within, self.close)

    # Called by the transport

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        self.received_at = self._loop.time()
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                if self._on_message is not None:
                    self._on_message(reply)
                else:
                    self._answer(reply)
        except Exception as error:
            # An error of a listener ends the connection as it is. An answer that cannot be read
            # counts as an error of the connection.
            listens = self._on_message is not None
            self._end(error if listens else RedisConnectionError(f"an answer cannot be read: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._before.connection_lost(exc)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        self._end(RedisConnectionError(str(exc) if exc is not None else "the server closed the connection"))

    def eof_received(self) -> None:
        self._end(RedisConnectionError("the server closed the connection"))

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    # Private

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

    def _check_deadline(self, late: bool = False) -> None:
        self._watch = None
        if not self._open:
            return
        left = self._seconds_left()
        if left > 0:
            self._watch = self._loop.call_later(left, self._check_deadline)
        elif not late:
            self._watch = self._loop.call_later(_LATE_SECONDS, self._check_deadline, True)
        else:
            self._end(RedisTimeoutError("no answer in time"))

    def _seconds_left(self) -> float:
        """Seconds until the first request counts as late. It does not while its answer arrives, or
        while bytes leave this process."""
        deadline, _, _, patience = self._open[0]
        left = max(deadline, self.received_at + patience) - self._loop.time()
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
            # No caller waits any more, and the transport ends with the loop.
            return
        if self._watch is not None:
            self._watch.cancel()
        while self._open:
            future = self._open.popleft()[1]
            if not future.done():
                future.set_exception(mark_sent(type(trouble)(*trouble.args)))
                # Marks the error as retrieved: if the caller has gone, asyncio must not log it.
                future.exception()
        self._transport.abort()
        if not self.ended.done():
            self.ended.set_result(None)

    def _drop_unsent(self) -> None:
        """Discards unsent bytes: they must not reach the server after a repeat of the request."""
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def keep_listening(pipeline: Pipeline, silence: float) -> None:
    """Waits on a connection with subscriptions and raises the error that ends it. After `silence`
    seconds without a message it sends a PING, which the server must answer within the same time."""
    loop = asyncio.get_running_loop()
    while pipeline.trouble is None:
        received_at = pipeline.received_at
        await asyncio.wait([pipeline.ended], timeout=max(received_at + silence - loop.time(), 0))
        if pipeline.trouble is None and pipeline.received_at == received_at:
            pipeline.send("PING")
            await asyncio.wait([pipeline.ended], timeout=silence)
            if pipeline.trouble is None and pipeline.received_at == received_at:
                raise RedisTimeoutError("the subscription connection does not answer")
    raise pipeline.trouble
