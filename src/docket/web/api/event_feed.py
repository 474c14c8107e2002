"""Events for programs: `GET /api/v1/{docket}/events`."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from docket._aio import cancel_and_wait
from docket.execution.events import read_event
from docket.inspection.census import Census
from docket.web.streams import CensusReader, SharedTap, event

from .plain import plain

# A program that reads more slowly than tasks change loses events, and is told how many.
MOST_WAITING = 1_000
_NEVER = datetime.fromtimestamp(0, UTC)


async def feed(reader: CensusReader, tap: SharedTap | None) -> AsyncGenerator[bytes]:
    """`census` when the counts have changed, at most once a second; `trouble` when the server is
    away; with a tap also `task` for every change of a task, and `dropped` for those that were
    lost."""
    inbox = _Inbox()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(reader.watching())
        if tap is not None:
            await stack.enter_async_context(tap.listening(inbox.put))
        number, trouble = reader.tick.number, None
        counts: Census | None = None
        while True:
            await _wait(reader, number, inbox.arrived)
            for data in inbox.take():
                yield data
            tick = reader.tick
            if tick.number <= number:
                continue
            number = tick.number
            if tick.trouble != trouble:
                trouble = tick.trouble
                yield event("trouble", json.dumps({"trouble": trouble}))
            if tick.census is not None and trouble is None:
                news = replace(tick.census, taken=_NEVER, rates=None)
                if news != counts or (tick.census.rates is not None and tick.census.rates.ended):
                    counts = news
                    yield event("census", json.dumps(plain(tick.census)))


async def _wait(reader: CensusReader, number: int, arrived: asyncio.Event) -> None:
    waiting: list[asyncio.Task[Any]] = [
        asyncio.create_task(reader.next_tick(number)),
        asyncio.create_task(arrived.wait()),
    ]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(waiting, "docket: the stream goes on")


class _Inbox:
    """Events that wait to be sent. The oldest ones make room for new ones."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self._waiting: deque[dict[str, Any]] = deque()
        self._dropped = 0

    def put(self, key: str, message: bytes) -> None:
        found = read_event(message)
        if found is None:
            return
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append({"key": key, **found})
        self.arrived.set()

    def take(self) -> list[bytes]:
        self.arrived.clear()
        found = [event("dropped", json.dumps({"events": self._dropped}))] if self._dropped else []
        found += [event("task", json.dumps(plain(one))) for one in self._waiting]
        self._dropped = 0
        self._waiting.clear()
        return found
