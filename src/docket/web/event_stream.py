"""Server-sent events: one answer that goes on, for one tab or program."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from docket._aio import cancel_and_wait

from .headers import NOT_STORED

# A stream ends after this time, and its tab opens it again: so the guard is asked again, and a web
# server that stops need not wait for long.
LIFE_SECONDS = 60.0
# A client that reads nothing for this long is given up.
STUCK_SECONDS = 20.0
# Proxies close connections on which nothing happens.
QUIET_SECONDS = 15.0
# How soon a tab opens its stream again.
RETRY_MS = 1_000


def event(name: str, data: str) -> bytes:
    """One event. A text with line breaks has a line of its own for each."""
    lines = "".join(f"data: {line}\n" for line in data.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return f"event: {name}\n{lines}\n".encode(errors="replace")


class EventStream(Response):
    """Sends what the generator yields until the client leaves, the life of the stream is over, or
    `stopping` is set. A slow client only slows its own generator. It holds its `room` meanwhile."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes],
        stopping: asyncio.Event,
        room: Callable[[], AbstractContextManager[None]],
    ) -> None:
        super().__init__(media_type=self.media_type)
        self._events = events
        self._stopping = stopping
        self._room = room
        headers = MutableHeaders(raw=self.raw_headers)
        del headers["content-length"]
        headers["cache-control"] = NOT_STORED
        # nginx would keep events until its buffer is full.
        headers["x-accel-buffering"] = "no"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._room():
                await self._answer(scope, receive, send)
        finally:
            await self._events.aclose()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        sending = asyncio.create_task(self._send_all(send))
        others = [asyncio.create_task(_client_leaves(receive)), asyncio.create_task(self._stopping.wait())]
        try:
            await asyncio.wait((sending, *others), timeout=LIFE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait([sending, *others], "docket: the stream is over")
        if not sending.cancelled():
            sending.result()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(STUCK_SECONDS):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        async def pass_on(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        await pass_on(f"retry: {RETRY_MS}\n\n".encode())
        waiting: asyncio.Task[Any] | None = None
        try:
            while True:
                waiting = waiting or asyncio.create_task(_next(self._events))
                done, _ = await asyncio.wait([waiting], timeout=QUIET_SECONDS)
                data, waiting = (b": still here\n\n", waiting) if not done else (waiting.result(), None)
                if data is None:
                    return
                async with asyncio.timeout(STUCK_SECONDS):
                    await pass_on(data)
        except (TimeoutError, OSError):
            return
        finally:
            if waiting is not None:
                await cancel_and_wait([waiting], "docket: the stream is over")


async def _next(events: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(events, None)


async def _client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
