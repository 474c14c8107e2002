"""Listens to the events of a docket once, for all programs that want them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from docket._aio import cancel_and_wait
from docket.docket import Docket
from docket.inspection.live import tapped_events
from docket.storage.subscriptions import OnEvent


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
