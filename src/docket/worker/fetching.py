"""Fetches work as slots become free: at once while there is some, blocked on the server while there is none."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from docket.ledger import Delivery, Entry, Ledger
from docket.storage.cancelling import cancel_and_wait, wait_out
from docket.storage.faults import SERVER_ERRORS, translate
from docket.storage.keys import GROUP, text_bytes
from docket.storage.line import Line
from docket.storage.server import BLOCK_SECONDS
from docket.storage.subscriptions import Subscriptions

from .ahead import Ahead
from .offering import Offer, Offering
from .running import Runner
from .runs import Run, Runs
from .service import Service
from .slots import Slots

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


class Fetcher(Service):
    """Claims deliveries and hands them to the runner."""

    name = "fetching"

    def __init__(
        self,
        ledger: Ledger,
        subscriptions: Subscriptions,
        slots: Slots,
        runner: Runner,
        runs: Runs,
        lease: LeaseView,
        labels: dict[str, str],
        most_pause: float,
    ) -> None:
        super().__init__(labels, most_pause)
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._slots = slots
        self._runner = runner
        self._runs = runs
        self._lease = lease
        self._context = contextvars.copy_context()
        self._line: Line | None = None
        # For how many the blocked read waits.
        self._reading = 0
        self._offering = Offering(ledger, subscriptions, slots, self._handed, runner.refuse)
        self._ahead = Ahead(slots, lambda: lease.lapsed, self._begin_run, runner.hand_back)
        # Whether the last look found nothing to take ahead.
        self._dry = False
        self._late_starts: set[asyncio.Task[None]] = set()
        self._stray_ids: list[str] = []
        self._next_stray_check = 0.0
        self._may_be_work = True
        self._claiming = self._halting = False
        self.worker = ""
        self.worker_json = ""
        self.last_step = 0.0

    async def run(self) -> None:
        """Until cancelled; but a cancel waits for a claim that is under way, and ends only what may be left half-way."""
        self._halting = False
        fetching = asyncio.create_task(super().run(), name=f"{self._labels['docket.name']} - claiming")
        try:
            await asyncio.shield(fetching)
        except asyncio.CancelledError:
            self._halting = True
            if not self._claiming:
                await cancel_and_wait([fetching], "docket: the worker stops")
            await wait_out(fetching)
            raise
        finally:
            await cancel_and_wait(list(self._late_starts), "docket: the worker stops")
            self._ahead.give_up()

    async def step(self) -> None:
        loop = asyncio.get_running_loop()
        self.last_step = loop.time()
        await self._wait_for_slot()
        if loop.time() >= self._next_stray_check:
            await self._adopt_strays()
            self._next_stray_check = loop.time() + (STRAY_AGAIN_SECONDS if self._stray_ids else STRAY_CHECK_SECONDS)
        worker = self.worker
        if self._room() < 1 and self._offering.state is not Offer.OFFERED:
            return
        if self._may_be_work or self._lease.lapsed or self._slots.free < 1 or self._offering.is_wanted:
            deliveries = await self._take(worker)
            if deliveries or deliveries is None:
                await self._begin(worker, deliveries)
                return
            if self._slots.free < 1:
                # Nothing to take ahead, or a hand-over is on its way for the only slot there was.
                self._dry = True
                return
        # A read that ends without work needs no second look: the next one is told of whatever comes.
        self._may_be_work = False
        entries = await self._wait_for_entries(self._slots.free)
        if entries:
            self._may_be_work = True
            await self._begin(worker, await self._whole(self._ledger.claim(worker, self.worker_json, entries)))

    async def open(self, worker: str, worker_json: str) -> None:
        self.worker, self.worker_json = worker, worker_json
        await self._offering.open(worker)
        self._subscriptions.on_gap(self, self.unsure)

    async def move(self, worker: str) -> None:
        """We go on under a new id."""
        self.worker = worker
        self._may_be_work = True
        await self._offering.open(worker)

    def offer_slot(self) -> str | None:
        """The id under which a slot is offered along with a settlement, if there is one to spare."""
        return self._offering.with_settlement(self._reading)

    @property
    def is_offering(self) -> bool:
        return self._offering.state is Offer.OFFERED

    async def withdraw(self) -> None:
        """Nothing is to come any more."""
        await self._offering.withdraw()

    async def close(self) -> None:
        self._subscriptions.forget_gap(self)
        await self._offering.close()
        await self._hang_up()

    async def recover(self) -> None:
        """A read whose answer was lost may have delivered something: look for it soon."""
        await self._hang_up()
        self._next_stray_check = 0.0
        self._may_be_work = True
        await self._ledger.server.revive()

    async def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            with contextlib.suppress(*SERVER_ERRORS):
                await line.aclose()

    def unsure(self) -> None:
        """Something that was said about an offer was lost, or may have been: the server has to be asked."""
        self._next_stray_check = 0.0
        self._may_be_work = True

    async def _take(self, worker: str) -> Claimed:
        kept = self._offering.keep_for_take()
        count = min(self._room(), TAKE_AT_MOST)
        try:
            deliveries = await self._whole(self._ledger.take(worker, self.worker_json, count, kept))
        finally:
            if kept is not None and self.worker == worker:
                self._offering.taken(kept)
        if self._offering.state is Offer.DUE:
            self._look_for_strays_soon()
        return deliveries

    async def _wait_for_slot(self) -> None:
        """A slot that is offered may be taken back; one for which a hand-over is due may have to be looked for."""
        dry, self._dry = self._dry, False
        if self._offering.state is Offer.NONE:
            if dry:
                await self._slots.wait()
            while self._room() < 1:
                await self._slots.wait_for_turnover()
        elif self._offering.state is Offer.DUE:
            try:
                async with asyncio.timeout(STRAY_AGAIN_SECONDS):
                    await self._slots.wait()
            except TimeoutError:
                self._next_stray_check = 0.0

    def _look_for_strays_soon(self) -> None:
        soon = asyncio.get_running_loop().time() + STRAY_AGAIN_SECONDS
        self._next_stray_check = min(self._next_stray_check, soon)

    def _handed(self, delivery: Delivery) -> None:
        """The server has claimed this for us. After a pause longer than the lease it has to say first whether it is ours."""
        if self._runs.find(delivery.epoch):
            self._slots.give_back()
        elif self._lease.lapsed:
            self._slots.give_back()
            task = asyncio.create_task(
                self._begin(self.worker, [delivery]), name=f"{self._labels['docket.name']} - claiming"
            )
            self._late_starts.add(task)
            task.add_done_callback(self._late_starts.discard)
        else:
            self._begin_run(self._runner.accept(delivery))

    def _room(self) -> int:
        """How many could be taken now: those for which there is a slot, and those that will have one in a moment."""
        return self._slots.free + (self._ahead.room() if self._may_be_work else 0)

    def _start(self, delivery: Delivery) -> None:
        run = self._runner.accept(delivery)
        if self._slots.free > 0:
            self._slots.take()
            self._begin_run(run)
        else:
            self._ahead.add(run)

    def _begin_run(self, run: Run) -> bool:
        # In the context the worker was started in: what the fetcher keeps to itself must not leak into tasks.
        return self._context.run(self._runner.begin, run)

    async def _whole(self, claim: Coroutine[Any, Any, Claimed]) -> Claimed:
        """A claim is not left half-way: if we are told to stop meanwhile, what it brought goes back untouched."""
        self._claiming, claimed = True, None
        try:
            claimed = await claim
        except Exception:
            if not self._halting:
                raise
        finally:
            self._claiming = False
        if not self._halting:
            return claimed
        for delivery in claimed or ():
            if not self._runs.find(delivery.epoch):
                self._runner.refuse(delivery)
        raise asyncio.CancelledError

    async def _begin(self, worker: str, deliveries: Claimed) -> None:
        if deliveries is None:
            # Without a lease there is no work; the renewal that is under way tells why. What a read has brought is still ours.
            self._next_stray_check = 0.0
            self._lease.renew_now()
            await self._backoff.pause()
            return
        if deliveries and not await self._is_still_ours(worker):
            return
        for delivery in deliveries:
            # A group that was made anew delivers again what we run already.
            if not self._runs.find(delivery.epoch):
                self._start(delivery)

    async def _is_still_ours(self, worker: str) -> bool:
        """After a pause longer than the lease others may have what lay in our socket: the server has to say first."""
        while self._lease.lapsed and self.worker == worker:
            self._lease.renew_now()
            await asyncio.sleep(UNSURE_SECONDS)
        return self.worker == worker

    async def _wait_for_entries(self, count: int) -> list[Entry]:
        """Blocks on the server until there is work, on a connection of its own."""
        front, stream = text_bytes(self._ledger.keys.front), text_bytes(self._ledger.keys.stream)
        looking = self._stray_ids or self._offering.state is Offer.DUE
        seconds = STRAY_AGAIN_SECONDS if looking else BLOCK_SECONDS
        self._reading = count
        try:
            if self._line is None:
                self._line = await self._ledger.server.blocking_line(self._ledger.keys.stream)
            reply: Any = await self._line.ask(
                "XREADGROUP", "GROUP", GROUP, self.worker, "COUNT", count, "BLOCK", int(seconds * 1000),
                "STREAMS", front, stream, ">", ">", patience=seconds + LATE_SECONDS,
            )  # fmt: skip
        except SERVER_ERRORS as error:
            raise translate(error, self._ledger.server.shown_url) or error from error
        except asyncio.CancelledError:
            # Else the server would go on waiting, and give us what nobody here reads.
            await self._hang_up()
            raise
        finally:
            self._reading = 0
        return [
            Entry(name == front, id.decode(), fields[1] if fields and fields[0] == b"k" else b"")
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
        if not self._stray_ids:
            self._offering.nothing_due()
        if ours:
            deliveries = await self._whole(self._ledger.claim(worker, self.worker_json, ours))
            self._offering.adopted({delivery.epoch for delivery in deliveries or ()})
            await self._begin(worker, deliveries)
