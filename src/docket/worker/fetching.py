"""Fetches work as slots become free: at once while there is some, blocked on the server while there is none."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from docket.ledger import Delivery, Entry, Ledger
from docket.model.errors import ServerUnreachable
from docket.storage.cancelling import wait_out
from docket.storage.faults import SERVER_ERRORS, translate
from docket.storage.keys import GROUP, text_bytes
from docket.storage.server import BLOCK_SECONDS

from .running import Runner
from .runs import Runs
from .service import Service

# While some run, the server hands out the next: asked for all at once, worker and server would take turns at waiting.
TAKE_AT_MOST = 50
STRAY_CHECK_SECONDS = 30.0
# What was seen once is looked at again soon.
STRAY_AGAIN_SECONDS = 1.0
UNSURE_SECONDS = 0.02
# How much longer than it was asked to the server may hold a read before the connection counts as dead.
LATE_SECONDS = 2.0

Claimed = Sequence[Delivery] | None


class LeaseView(Protocol):
    """What the fetcher wants to know of the worker's lease."""

    @property
    def lapsed(self) -> bool: ...

    def renew_now(self) -> None: ...


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
        runner: Runner,
        runs: Runs,
        lease: LeaseView,
        labels: dict[str, str],
        most_pause: float,
    ) -> None:
        super().__init__(labels, most_pause)
        self._ledger = ledger
        self._slots = slots
        self._runner = runner
        self._runs = runs
        self._lease = lease
        self._context = contextvars.copy_context()
        self._client: Any = None
        self._stray_ids: list[str] = []
        self._next_stray_check = 0.0
        self._may_be_work = True
        self.worker = ""
        self.worker_json = ""
        self.last_step = 0.0

    async def step(self) -> None:
        loop = asyncio.get_running_loop()
        self.last_step = loop.time()
        free = await self._slots.wait()
        if loop.time() >= self._next_stray_check:
            await self._adopt_strays()
            self._next_stray_check = loop.time() + (STRAY_AGAIN_SECONDS if self._stray_ids else STRAY_CHECK_SECONDS)
        worker = self.worker
        if self._may_be_work or self._lease.lapsed:
            deliveries = await self._whole(self._ledger.take(worker, self.worker_json, min(free, TAKE_AT_MOST)))
            if deliveries or deliveries is None:
                await self._begin(worker, deliveries)
                return
        # A read that ends without work needs no second look: the next one is told of whatever comes.
        self._may_be_work = False
        entries = await self._wait_for_entries(max(self._slots.free, 1))
        if entries:
            self._may_be_work = True
            await self._begin(worker, await self._whole(self._ledger.claim(worker, self.worker_json, entries)))

    async def recover(self) -> None:
        """A read whose answer was lost may have delivered something: look for it soon."""
        await self.close()
        self._next_stray_check = 0.0
        self._may_be_work = True
        await self._ledger.server.revive()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*SERVER_ERRORS):
                await client.aclose()

    async def _whole(self, claim: Coroutine[Any, Any, Claimed]) -> Claimed:
        """A claim is not left half-way: if we are told to stop meanwhile, what it brought goes back untouched."""
        claiming = asyncio.create_task(claim, name=f"{self._labels['docket.name']} - claiming")
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await wait_out(claiming)
            if claiming.exception() is None:
                for delivery in claiming.result() or ():
                    if not self._runs.find(delivery.epoch):
                        self._runner.refuse(delivery)
            raise

    async def _begin(self, worker: str, deliveries: Claimed) -> None:
        if deliveries is None:
            # Without a lease there is no work; the renewal that is under way tells why.
            self._lease.renew_now()
            await self._backoff.pause()
            return
        if deliveries and not await self._is_still_ours(worker):
            return
        for delivery in deliveries:
            # A group that was made anew delivers again what we run already.
            if not self._runs.find(delivery.epoch):
                self._slots.take()
                # In the context the worker was started in: what the fetcher keeps to itself must not leak into tasks.
                self._context.run(self._runner.start, delivery)

    async def _is_still_ours(self, worker: str) -> bool:
        """After a pause longer than the lease others may have what lay in our socket: the server has to say first."""
        while self._lease.lapsed and self.worker == worker:
            self._lease.renew_now()
            await asyncio.sleep(UNSURE_SECONDS)
        return self.worker == worker

    async def _wait_for_entries(self, count: int) -> list[Entry]:
        """Blocks on the server until there is work, on a connection of its own."""
        front, stream = text_bytes(self._ledger.keys.front), text_bytes(self._ledger.keys.stream)
        seconds = STRAY_AGAIN_SECONDS if self._stray_ids else BLOCK_SECONDS
        try:
            async with asyncio.timeout(seconds + LATE_SECONDS):
                if self._client is None:
                    self._client = await self._ledger.server.blocking_client(self._ledger.keys.stream)
                reply: Any = await self._client.execute_command(
                    "XREADGROUP", "GROUP", GROUP, self.worker, "COUNT", count, "BLOCK", int(seconds * 1000),
                    "STREAMS", front, stream, ">", ">",
                )  # fmt: skip
        except TimeoutError:
            raise ServerUnreachable(f"{self._ledger.server.shown_url}: a read was not answered in time") from None
        except SERVER_ERRORS as error:
            raise translate(error, self._ledger.server.shown_url) or error from error
        return [
            Entry(name == front, id.decode(), fields[b"k"] if fields and b"k" in fields else b"")
            for name, rows in (reply or ())
            for id, fields in rows
        ]

    async def _adopt_strays(self) -> None:
        """Deliveries that count as ours and that we have not heard of, twice in a row, are taken up."""
        worker = self.worker
        strays = await self._ledger.strays(worker, self._runs.keys(), self._stray_ids)
        known = set(self._runs.keys())
        ours = [s for s in strays if s.seen_before and s.key.decode("utf-8", "surrogatepass") not in known]
        self._stray_ids = [s.id for s in strays if not s.seen_before]
        if ours:
            await self._begin(worker, await self._whole(self._ledger.claim(worker, self.worker_json, ours)))
