"""Event streams, and the readings and the subscription that all visitors of a docket share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from docket._aio import cancel_and_wait
from docket.docket import Docket
from docket.errors import DocketError
from docket.inspection.census import Census, CensusTaker
from docket.inspection.live import tapped_events
from docket.storage.subscriptions import OnEvent

from .access import NOT_STORED

logger: logging.Logger = logging.getLogger("docket.web")

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


class SharedTap:
    """One subscription for all listeners of this process, and none while there are no listeners."""

    def __init__(self, docket: Docket) -> None:
        self._docket = docket
        self._listeners: list[OnEvent] = []
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @asynccontextmanager
    async def listening(self, on_event: OnEvent) -> AsyncGenerator[None]:
        self._listeners.append(on_event)
        if self._task is None:
            self._ready = asyncio.Event()
            self._task = asyncio.create_task(self._listen(self._ready), name=f"{self._docket.name} - shared tap")
        try:
            await self._ready.wait()
            yield
        finally:
            self._listeners.remove(on_event)
            if not self._listeners:
                task, self._task = self._task, None
                await cancel_and_wait([task], "docket: nobody listens any longer")

    async def _listen(self, ready: asyncio.Event) -> None:
        async with tapped_events(self._docket, self._pass_on, lambda refusal: None):
            ready.set()
            await asyncio.get_running_loop().create_future()

    def _pass_on(self, key: str, message: bytes) -> None:
        for listener in self._listeners:
            listener(key, message)


# The time between two censuses while somebody watches.
TICK_SECONDS = 1.0
# A census that is younger than this is not taken again.
_FRESH_SECONDS = 0.9
_ANSWER_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class CensusReading:
    """The last reading. `trouble` says why it could not read; the census is then the last
    one that there was."""

    number: int
    census: Census | None
    trouble: str | None


class CensusReader:
    """Takes a census every second while anybody watches, and none while nobody does.

    Watchers that are slow miss ticks: each one gets the newest when it is ready for it.
    """

    def __init__(self, docket: Docket) -> None:
        self._docket = docket
        self._taker = CensusTaker(docket)
        self._reading = asyncio.Lock()
        self._taken_at = -_FRESH_SECONDS
        self._changed = asyncio.Event()
        self._watchers = 0
        self._loop: asyncio.Task[None] | None = None
        self._shared: dict[Hashable, asyncio.Future[Any]] = {}
        self.tick: CensusReading = CensusReading(0, None, None)

    @property
    def recent(self) -> deque[Census]:
        """The last censuses, the oldest first."""
        return self._taker.recent

    @property
    def is_awake(self) -> bool:
        return self._loop is not None

    async def read(self) -> Census:
        """The census, at most about a second old. Raises what the read raises."""
        async with self._reading:
            newest = self.recent[-1] if self.recent else None
            if newest is None or time.monotonic() - self._taken_at > _FRESH_SECONDS:
                newest = await self._taker.take()
                self._taken_at = time.monotonic()
            return newest

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Keeps the reader awake."""
        self._watchers += 1
        if self._loop is None:
            self._loop = asyncio.create_task(self._run(), name=f"{self._docket.name} - census")
        try:
            yield
        finally:
            self._watchers -= 1
            if self._watchers == 0:
                loop, self._loop = self._loop, None
                await cancel_and_wait([loop], "docket: nobody watches any longer")

    async def next_tick(self, seen: int) -> CensusReading:
        """The newest tick, as soon as there is one after the tick of that number."""
        while self.tick.number <= seen:
            await self._changed.wait()
        return self.tick

    async def once(self, what: Hashable, make: Callable[[], Awaitable[Any]]) -> Any:
        """The result of `make`. All callers of one tick share it, also its error."""
        found = self._shared.get(what)
        if found is None:
            found = self._shared[what] = asyncio.ensure_future(make())
            # If everybody has left, nobody asks for its error.
            found.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(found)

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            census, trouble = self.tick.census, None
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    census = await self.read()
            except (DocketError, TimeoutError) as error:
                trouble = str(error) or "the server does not answer"
                await self._revive()
            except Exception:
                logger.exception("the census of docket %r failed", self._docket.name)
                trouble = "the log of the dashboard has the details"
            self._shared.clear()
            self.tick = CensusReading(self.tick.number + 1, census, trouble)
            self._changed.set()
            self._changed = asyncio.Event()
            await asyncio.sleep(max(TICK_SECONDS - (time.monotonic() - began), 0.1))

    async def _revive(self) -> None:
        """Restarts an embedded server that died. Does nothing for any other server."""
        with contextlib.suppress(DocketError, TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._docket.server.revive()
