"""Fetches work as slots become free: at once while there
is some, blocked on the server while there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from docket.ledger import Delivery, Entry, Ledger, WaitingFunctions
from docket.ledger.delivery_reader import DeliveryReader
from docket.storage.server import BLOCK_SECONDS
from docket.storage.subscriptions import Subscriptions

from .claiming_service import Claimed, ClaimingService
from .direct_delivery import DirectDelivery, Offer
from .intake import Intake, LeaseView
from .isolation import Isolation
from .runner import Runner
from .runs import Runs
from .slots import Slots
from .unknown_deliveries import UnknownDeliveries

# While some run, the server hands out the next: asked for
# all at once, worker and server would take turns at waiting.
TAKE_AT_MOST = 50
# How long a read waits while a hand-over is due, after which the slot kept for it may be free.
DUE_SECONDS = 1.0


class Fetcher(ClaimingService):
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
        self._intake = Intake(slots, runner, runs, lease, labels["docket.name"])
        super().__init__(labels, most_pause, self._intake.refuse)
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._slots = slots
        self._lease = lease
        self._reader = DeliveryReader(ledger)
        # For how many the blocked read waits.
        self._reading = 0
        self._direct_delivery = DirectDelivery(
            ledger,
            subscriptions,
            slots,
            self._intake.is_known,
            self._intake.receive_direct,
            runner.refuse,
            lease.age,
            lambda: self.unknown_deliveries.check_now(),
        )
        self.unknown_deliveries: UnknownDeliveries = UnknownDeliveries(
            ledger,
            subscriptions,
            self._intake,
            self._direct_delivery,
            lease,
            labels,
            most_pause,
            self._claims_under_way,
        )
        self._isolation = Isolation(ledger, slots, runs, self._intake.prefetch.give_up, self._intake.process)
        # Whether the last look found nothing to take ahead.
        self._dry = False
        # The entries of the blocked read that are being claimed.
        self._being_claimed: set[str] = set()
        self._may_be_work = True
        # Functions that this worker knows and whose tasks may wait for it.
        self._functions: set[str] = set()
        # Whether the last `take` was sent before there was a reason for another one.
        self._must_look_again = False
        self.worker: str = ""
        self.worker_json: str = ""

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            await self._intake.close()

    async def step(self) -> None:
        if self._isolation.reserved is not None:
            await self._claim_reserved()
            return
        if self._isolation.is_kept_out:
            await self._isolation.wait_for_others()
            return
        await self._wait_for_slot()
        worker = self.worker
        if self._room() < 1 and (self._direct_delivery.state is not Offer.OFFERED or self._slots.are_held):
            return
        if self._must_ask:
            deliveries = await self._take(worker)
            if deliveries or deliveries is None:
                await self._begin(worker, deliveries)
                return
            # What follows may wait for long.
            self.clear_problem()
            if self._slots.free < 1:
                # Nothing to take ahead, or a hand-over is on its way for the only slot there was.
                self._dry = True
                return
        # A read that ends without work needs no second
        # look: the next one is told of whatever comes.
        self._may_be_work = False
        entries = await self._wait_for_entries(min(self._slots.free, TAKE_AT_MOST))
        if entries:
            self._may_be_work = True
            await self._begin(worker, await self._claim(worker, entries))

    @property
    def _must_ask(self) -> bool:
        """Whether a blocked read would not do: there may be work
        already, or something to be said along with a `take`."""
        return (
            self._may_be_work
            or self._lease.lapsed
            or self._slots.free < 1
            or self._direct_delivery.is_wanted
            or bool(self._functions)
        )

    async def open(self, worker: str, worker_json: str) -> None:
        self.worker, self.worker_json = worker, worker_json
        self._intake.worker = worker
        await self._direct_delivery.open(worker)
        self.unknown_deliveries.open(worker, worker_json)
        self._subscriptions.on_gap(self, self._look_for_work)

    async def move(self, worker: str) -> None:
        """We go on under a new id."""
        self.worker = self._intake.worker = worker
        self._may_be_work = True
        self.unknown_deliveries.move(worker)
        self._isolation.release()
        await self._direct_delivery.open(worker)

    def bring_forward(self, functions: Iterable[str]) -> None:
        """Tasks of these functions wait for a worker that knows them."""
        self._functions.update(functions)
        self.interrupt()

    def interrupt(self) -> None:
        """Looks for work now, whatever the blocked read waits for."""
        self._may_be_work = self._must_look_again = True
        self._reader.interrupt()

    def offer_slot(self) -> str | None:
        """The id under which a slot is offered along
        with a settlement, if there is one to spare."""
        return self._direct_delivery.with_settlement(self._reading)

    @property
    def reading_client(self) -> int | None:
        """The connection of the blocked read, as the
        server names it. Safe to read from any thread."""
        return self._reader.waiting_id

    @property
    def has_offer(self) -> bool:
        return self._direct_delivery.state is Offer.OFFERED

    def begin_nothing(self) -> None:
        """The worker begins to stop."""
        self._direct_delivery.refuse_from_now()

    async def withdraw(self) -> None:
        """Nothing is to come any more."""
        await self._isolation.close(self.worker, self.worker_json)
        await self._direct_delivery.withdraw()

    async def close(self) -> None:
        self._subscriptions.forget_gap(self)
        self.unknown_deliveries.close()
        await self._direct_delivery.close()
        await self._reader.close()

    async def recover(self) -> None:
        """A read whose answer was lost may have delivered something: look for it soon."""
        await self._reader.close()
        self.unsure()
        await self._ledger.server.revive()

    def unsure(self) -> None:
        """Something that was said about an offer was lost,
        or may have been: the server has to be asked."""
        self.unknown_deliveries.check_now()
        self._look_for_work()

    def _look_for_work(self) -> None:
        self._may_be_work = True

    async def _take(self, worker: str) -> Claimed:
        kept = self._direct_delivery.keep_for_take()
        count = min(self._room(), TAKE_AT_MOST)
        functions = WaitingFunctions(list(self._functions)) if self._functions else None
        # Those that are told of from now on may come too late for this look.
        self._functions.clear()
        self._must_look_again = False
        try:
            deliveries = await self._whole(
                self._ledger.take(
                    worker,
                    self.worker_json,
                    count,
                    kept,
                    self._isolation.ready_notes(),
                    functions=functions,
                    reads_front=self._isolation.reads_front,
                )
            )
        finally:
            if functions is not None:
                self._functions.update(functions.names if functions.left is None else functions.left)
            if kept is not None and self.worker == worker:
                self._direct_delivery.taken(kept)
        self._isolation.apply_notes()
        if self._direct_delivery.state is Offer.DUE:
            self.unknown_deliveries.check_soon()
        return deliveries

    async def _claim(self, worker: str, entries: list[Entry], *, gives_up: bool = False) -> Claimed:
        self._being_claimed = {entry.id for entry in entries}
        try:
            claim = self._ledger.claim(
                worker, self.worker_json, entries, self._isolation.ready_notes(), gives_up=gives_up
            )
            deliveries = await self._whole(claim)
        finally:
            self._being_claimed = set()
        self._isolation.apply_notes()
        return deliveries

    async def _claim_reserved(self) -> None:
        """Claims the suspect that waits for this worker once
        nothing else runs here, or puts it back after a while."""
        worker, entry = self.worker, self._isolation.reserved
        drained = await self._isolation.drain()
        if entry is None or entry is not self._isolation.reserved:
            return
        deliveries = await self._claim(worker, [entry], gives_up=not drained)
        if self._isolation.reserved is not entry:
            # The server counts something as ours that we have
            # not heard of: then the suspect is not for us.
            self.unknown_deliveries.check_now()
            deliveries = await self._claim(worker, [entry], gives_up=True)
        self._isolation.release()
        await self._begin(worker, deliveries)

    def _claims_under_way(self) -> set[str]:
        """Entries that are known here though they are not claimed."""
        reserved = self._isolation.reserved
        return self._being_claimed | {reserved.id} if reserved is not None else self._being_claimed

    async def _wait_for_slot(self) -> None:
        """A slot that is offered may be taken back; one for which
        a hand-over is due becomes free if nothing comes."""
        dry, self._dry = self._dry, False
        if self._direct_delivery.state is Offer.NONE:
            if dry:
                await self._slots.wait()
            while self._room() < 1:
                await self._slots.wait_for_turnover()
        elif self._direct_delivery.state is Offer.DUE:
            await self._slots.wait()

    def _room(self) -> int:
        """How many could be taken now: those for which there
        is a slot, and those that will have one in a moment."""
        if self._slots.are_held:
            return 0
        return self._slots.free + (self._intake.prefetch.room() if self._may_be_work else 0)

    async def _begin(self, worker: str, deliveries: Claimed) -> None:
        if deliveries is None:
            # Without a lease there is no work; the renewal that is under way tells why. What a read
            # has brought is still ours.
            self.unknown_deliveries.check_now()
            self._lease.renew_now()
            await self._backoff.pause()
            return
        if self._isolation.notes.alone is not None and deliveries:
            await self._begin_alone(worker, deliveries[0])
        else:
            await self._intake.receive(worker, deliveries)

    async def _begin_alone(self, worker: str, delivery: Delivery) -> None:
        """A single suspect: the server says that nothing else
        is ours, and nothing is on its way for an offer."""
        if not self._isolation.may_begin():
            self._intake.refuse(delivery)
            return
        self._direct_delivery.dropped()
        await self._isolation.begin(worker, delivery)
        await self._intake.receive(worker, [delivery])
        self._isolation.begun(worker, delivery)

    async def _wait_for_entries(self, count: int) -> list[Entry]:
        """Blocks on the server until there is work."""
        seconds = DUE_SECONDS if self._direct_delivery.state is Offer.DUE else BLOCK_SECONDS
        reads_front = self._isolation.reads_front
        if not reads_front:
            seconds = min(seconds, self._isolation.front_pause)
        self._reading = count
        try:
            await self._reader.open()
            if self._must_look_again:
                self._may_be_work = True
                return []
            entries = await self._reader.read(self.worker, count, seconds, reads_front=reads_front)
        except asyncio.CancelledError:
            # Else the server would go on waiting, and give us what nobody here reads.
            await self._reader.close()
            raise
        finally:
            self._reading = 0
        if self._reader.was_cut:
            self.unknown_deliveries.check_now()
        return entries
