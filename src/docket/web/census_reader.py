"""Reads the census of a docket for everybody who watches it in this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from docket._aio import cancel_and_wait
from docket.docket import Docket
from docket.errors import DocketError
from docket.inspection.census import Census, CensusTaker

logger: logging.Logger = logging.getLogger("docket.web")

# The time between two censuses while somebody watches.
TICK_SECONDS = 1.0
# A census that is younger than this is not taken again.
_FRESH_SECONDS = 0.9
_ANSWER_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Tick:
    """What the reader saw last. `trouble` says why it could not read; the census is then the last
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
        self.tick: Tick = Tick(0, None, None)

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

    async def next_tick(self, seen: int) -> Tick:
        """The newest tick, as soon as there is one after the tick of that number."""
        while self.tick.number <= seen:
            await self._changed.wait()
        return self.tick

    async def once(self, what: Hashable, make: Callable[[], Awaitable[Any]]) -> Any:
        """What `make` makes. All who ask for the same in one tick share it, also its error."""
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
            self.tick = Tick(self.tick.number + 1, census, trouble)
            self._changed.set()
            self._changed = asyncio.Event()
            await asyncio.sleep(max(TICK_SECONDS - (time.monotonic() - began), 0.1))

    async def _revive(self) -> None:
        """Restarts an embedded server that died. Does nothing for any other server."""
        with contextlib.suppress(DocketError, TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._docket.server.revive()
