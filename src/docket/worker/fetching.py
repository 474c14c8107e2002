"""Fetches work as slots become free: at once while there is some, blocked on the server while there is none."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import RedisError

from docket.ledger import Delivery, Entry, Ledger
from docket.storage.faults import translate
from docket.storage.keys import GROUP
from docket.storage.server import BLOCK_SECONDS

from .service import Service

STRAY_CHECK_SECONDS = 10.0


class Slots:
    """How many runs may start. Freed slots wake the fetcher."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._freed = asyncio.Event()

    def take(self) -> None:
        self.free -= 1

    def give_back(self) -> None:
        self.free += 1
        self._freed.set()

    async def wait(self) -> int:
        while self.free <= 0:
            self._freed.clear()
            await self._freed.wait()
        return self.free


class Fetcher(Service):
    """Claims deliveries and hands them to the runner."""

    name = "fetching"

    def __init__(
        self,
        ledger: Ledger,
        slots: Slots,
        start: Callable[[Delivery], None],
        known_keys: Callable[[], Sequence[str]],
        no_lease: Callable[[], None],
        labels: dict[str, str],
        most_pause: float,
    ) -> None:
        super().__init__(labels, most_pause)
        self._ledger = ledger
        self._slots = slots
        self._start = start
        self._known_keys = known_keys
        self._no_lease = no_lease
        self._context = contextvars.copy_context()
        self._client: Any = None
        self._stray_ids: list[str] = []
        self._next_stray_check = 0.0
        self.worker = ""
        self.worker_json = ""
        self.last_step = 0.0

    async def step(self) -> None:
        loop = asyncio.get_running_loop()
        self.last_step = loop.time()
        free = await self._slots.wait()
        if loop.time() >= self._next_stray_check:
            await self._adopt_strays()
            self._next_stray_check = loop.time() + STRAY_CHECK_SECONDS
        deliveries = await self._ledger.take(self.worker, self.worker_json, free)
        if deliveries is not None and not deliveries:
            entries = await self._wait_for_entries(max(self._slots.free, 1))
            if not entries:
                return
            deliveries = await self._ledger.claim(self.worker, self.worker_json, entries)
        await self._begin(deliveries)

    async def recover(self) -> None:
        """A read whose answer was lost may have delivered something: look for it soon."""
        await self.close()
        self._next_stray_check = 0.0
        await self._ledger.server.revive()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(RedisError, OSError):
                await client.aclose()

    async def _begin(self, deliveries: Sequence[Delivery] | None) -> None:
        if deliveries is None:
            # Without a lease there is no work; the renewal that is under way tells why.
            self._no_lease()
            await self._backoff.pause()
            return
        for delivery in deliveries:
            self._slots.take()
            # In the context the worker was started in: what the fetcher keeps to itself must not leak into tasks.
            self._context.run(self._start, delivery)

    async def _wait_for_entries(self, count: int) -> list[Entry]:
        """Blocks on the server until there is work, on a connection of its own."""
        if self._client is None:
            self._client = await self._ledger.server.blocking_client(self._ledger.keys.stream)
        keys = self._ledger.keys
        try:
            reply: Any = await self._client.execute_command(
                "XREADGROUP", "GROUP", GROUP, self.worker, "COUNT", count, "BLOCK", int(BLOCK_SECONDS * 1000),
                "STREAMS", keys.front, keys.stream, ">", ">",
            )  # fmt: skip
        except (RedisError, OSError, EOFError) as error:
            raise translate(error, self._ledger.server.shown_url) or error from error
        front = keys.front.encode("utf-8", "surrogatepass")
        return [
            Entry(stream == front, id.decode(), fields[b"k"] if fields and b"k" in fields else b"")
            for stream, rows in (reply or ())
            for id, fields in rows
        ]

    async def _adopt_strays(self) -> None:
        """Deliveries that count as ours and that we have not heard of, twice in a row, are taken up."""
        strays = await self._ledger.strays(self.worker, self._known_keys(), self._stray_ids)
        known = set(self._known_keys())
        ours = [s for s in strays if s.seen_before and s.key.decode("utf-8", "surrogatepass") not in known]
        self._stray_ids = [s.id for s in strays if not s.seen_before]
        if ours:
            await self._begin(await self._ledger.claim(self.worker, self.worker_json, ours))
