"""Claims tasks as slots become free. While there is work, the fetcher sends `take`; while there is
none, it blocks on the server."""

from __future__ import annotations

from collections.abc import Iterable

from docket.ledger import Delivery, Entry, Ledger, ReservedSlot, SlotOffer, WaitingFunctions
from docket.ledger.delivery_reader import DeliveryReader
from docket.storage.server import BLOCK_SECONDS
from docket.storage.subscriptions import Subscriptions
from docket.worker.lease.lease import LeaseView
from docket.worker.running.runner import Runner
from docket.worker.running.runs import Runs, Slots
from docket.worker.service import Service

from .direct_delivery import DirectDelivery, Offer
from .intake import Claimed, ClaimGuard, Intake, Prefetcher
from .isolation import Isolation
from .unknown_deliveries import UnknownDeliveries

# Claim in chunks, so the server prepares the next one while this one runs. Each chunk costs the
# server as much as four tasks in addition to its tasks.
TAKE_AT_MOST = 100
# How long a read blocks while a direct delivery is due. The slot reserved for it may be free then.
DUE_SECONDS = 1.0


class Fetcher(Service):
    """Claims deliveries and passes them to the intake.

    A `take` also carries the slot that the worker offers and the functions whose tasks may wait for
    this worker.
    """

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
        self._intake = Intake(slots, runner, runs, lease, labels["docket.name"])
        self.prefetcher: Prefetcher = self._intake.prefetcher
        self._guard = ClaimGuard(self._intake.refuse)
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._slots, self._lease = slots, lease
        self._reader = DeliveryReader(ledger)
        self._direct_delivery = DirectDelivery(
            ledger,
            subscriptions,
            slots,
            self._intake.is_known,
            self._intake.receive_direct,
            self._intake.refuse,
            lease.age,
            lambda: self.unknown_deliveries.check_now(),
        )
        self._isolation = Isolation(ledger, slots, runs, self.prefetcher.give_up, self._intake.process)
        self.unknown_deliveries: UnknownDeliveries = UnknownDeliveries(
            ledger, subscriptions, self._intake, self._direct_delivery, lease, labels, most_pause, self._unanswered
        )
        self._worker = self._worker_json = ""
        # Functions that this worker knows and whose tasks may wait for it.
        self._functions: set[str] = set()
        # The entries whose claim is not answered yet.
        self._claiming: set[str] = set()
        # Whether the last `take` found nothing to prefetch.
        self._nothing_ready = False
        self._may_be_work = True

    async def run(self) -> None:
        try:
            await self._guard.run(super().run(), f"{self._labels['docket.name']} - {self.name}")
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
        worker = self._worker
        if self._room() < 1 and (self._direct_delivery.state is not Offer.OFFERED or self._slots.are_reserved):
            return
        if self._must_take:
            deliveries = await self._take(worker)
            if deliveries or deliveries is None:
                await self._receive(worker, deliveries)
                return
            # The read below may block for long.
            self.clear_problem()
            if self._slots.free < 1:
                # There was nothing to prefetch, or a direct delivery is due for the only free slot.
                self._nothing_ready = True
                return
        # A read that ends without entries needs no `take` before the next read: that read sees any
        # task that becomes ready.
        self._may_be_work = False
        entries = await self._wait_for_entries(min(self._slots.free, TAKE_AT_MOST))
        if entries:
            self._may_be_work = True
            await self._receive(worker, await self._claim(worker, entries))

    @property
    def _must_take(self) -> bool:
        """Whether a `take` is needed before a blocked read: tasks may be ready already, or the
        `take` has something to say to the server."""
        return (
            self._may_be_work
            or self._lease.lapsed
            or self._slots.free < 1
            or self._direct_delivery.is_wanted
            or bool(self._functions)
        )

    async def open(self, worker: str, worker_json: str) -> None:
        self._worker, self._worker_json = worker, worker_json
        self._intake.worker = worker
        await self._direct_delivery.open(worker)
        self.unknown_deliveries.open(worker, worker_json)
        self._subscriptions.on_gap(self, self._expect_work)

    def lose(self) -> None:
        """The worker has lost its lease: other workers have the deliveries of its id, and those
        that still arrive must not start. `move` follows."""
        self._intake.worker = ""
        self._direct_delivery.forget()

    async def move(self, worker: str) -> None:
        """Continues under a new id."""
        self._worker = self._intake.worker = worker
        self._may_be_work = True
        self.unknown_deliveries.move(worker)
        self._isolation.release()
        await self._direct_delivery.open(worker)

    def bring_forward(self, functions: Iterable[str]) -> None:
        """Tasks of these functions wait for a worker that knows them."""
        self._functions.update(functions)
        self.interrupt()

    def interrupt(self) -> None:
        """Ends the blocked read and sends a `take` now."""
        self._may_be_work = True
        self._reader.interrupt()

    def offer_slot(self) -> SlotOffer | None:
        """The slot that a settlement offers, if one can be spared."""
        return self._direct_delivery.with_settlement(self._reader.waiting_for)

    @property
    def reading_client(self) -> int | None:
        """The server's id of the connection that the blocked read uses. Safe to read from any
        thread."""
        return self._reader.waiting_id

    @property
    def has_offer(self) -> bool:
        return self._direct_delivery.state is Offer.OFFERED

    def refuse_from_now(self) -> None:
        """The worker begins to stop: direct deliveries go back untouched."""
        self._direct_delivery.refuse_from_now()

    async def withdraw(self) -> None:
        """The worker takes no more work."""
        await self._isolation.close(self._worker, self._worker_json)
        await self._direct_delivery.withdraw()

    async def close(self) -> None:
        self._subscriptions.forget_gap(self)
        self.unknown_deliveries.close()
        await self._direct_delivery.close()
        await self._reader.close()

    async def recover(self) -> None:
        """A read whose answer was lost may have delivered a task, so the worker looks for it."""
        await self._reader.close()
        self.recheck()
        await self._ledger.server.revive()

    def recheck(self) -> None:
        """An answer about an offer was lost, or may have been lost: the server is asked."""
        self.unknown_deliveries.check_now()
        self._expect_work()

    def _expect_work(self) -> None:
        self._may_be_work = True

    async def _take(self, worker: str) -> Claimed:
        """Claims tasks for the free slots, and those to prefetch. If there are none, the server may
        use the slot that is reserved."""
        self._reader.was_interrupted = False
        reserved = self._direct_delivery.reserve_for_take()
        count = min(self._room(), TAKE_AT_MOST)
        deliveries = await self._guard.answer(self._ask_for_tasks(worker, count, reserved))
        self._isolation.apply_notes()
        if self._direct_delivery.state is Offer.DUE:
            self.unknown_deliveries.check_soon()
        return deliveries

    async def _ask_for_tasks(self, worker: str, count: int, reserved: ReservedSlot | None) -> Claimed:
        functions = WaitingFunctions(list(self._functions)) if self._functions else None
        # This `take` may be too early for functions that are added from now on.
        self._functions.clear()
        try:
            return await self._ledger.deliveries.take(
                worker,
                self._worker_json,
                count,
                reserved,
                self._isolation.ready_notes(),
                functions=functions,
                reads_front=self._isolation.reads_front,
            )
        finally:
            if functions is not None:
                self._functions.update(functions.names if functions.left is None else functions.left)
            if reserved is not None and self._worker == worker:
                self._direct_delivery.taken(reserved)

    async def _claim(self, worker: str, entries: list[Entry], *, gives_up: bool = False) -> Claimed:
        """Claims entries that were read. `gives_up` puts a reserved suspect back instead."""
        deliveries = await self._guard.answer(self._ask_for_entries(worker, entries, gives_up=gives_up))
        self._isolation.apply_notes()
        return deliveries

    async def _ask_for_entries(self, worker: str, entries: list[Entry], *, gives_up: bool) -> Claimed:
        self._claiming = {entry.id for entry in entries}
        try:
            return await self._ledger.deliveries.claim(
                worker, self._worker_json, entries, self._isolation.ready_notes(), gives_up=gives_up
            )
        finally:
            self._claiming = set()

    def _unanswered(self) -> set[str]:
        """The entries that this worker knows although they are not claimed."""
        reserved = self._isolation.reserved
        return self._claiming | {reserved.id} if reserved is not None else self._claiming

    async def _claim_reserved(self) -> None:
        """Claims the suspect that waits for this worker once nothing else runs here, or puts it
        back after a while."""
        worker, entry = self._worker, self._isolation.reserved
        drained = await self._isolation.drain()
        if entry is None or entry is not self._isolation.reserved:
            return
        deliveries = await self._claim(worker, [entry], gives_up=not drained)
        if self._isolation.reserved is not entry:
            # The server has given this worker a delivery that it does not know, so the worker is
            # not free for the suspect.
            self.unknown_deliveries.check_now()
            deliveries = await self._claim(worker, [entry], gives_up=True)
        self._isolation.release()
        await self._receive(worker, deliveries)

    async def _wait_for_slot(self) -> None:
        """A slot that is offered may be taken back. A slot for which a direct delivery is due
        becomes free if nothing comes."""
        nothing_ready, self._nothing_ready = self._nothing_ready, False
        if self._direct_delivery.state is Offer.NONE:
            if nothing_ready:
                await self._slots.wait()
            while self._room() < 1:
                await self._slots.wait_for_turnover()
        elif self._direct_delivery.state is Offer.DUE:
            await self._slots.wait()

    def _room(self) -> int:
        """How many tasks the worker can claim now: one
        for each free slot, and those to prefetch."""
        if self._slots.are_reserved:
            return 0
        return self._slots.free + (self.prefetcher.room() if self._may_be_work else 0)

    async def _receive(self, worker: str, deliveries: Claimed) -> None:
        if deliveries is None:
            # The worker has no lease; the renewal finds out why. Entries that a read brought still
            # belong to this worker.
            self.unknown_deliveries.check_now()
            self._lease.renew_now()
            await self._backoff.pause()
            return
        if self._isolation.notes.alone is not None and deliveries:
            await self._receive_alone(worker, deliveries[0])
        else:
            await self._intake.receive(worker, deliveries)

    async def _receive_alone(self, worker: str, delivery: Delivery) -> None:
        """Starts a single suspect. The server says that this worker has no other delivery, and that
        no direct delivery is due."""
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
        entries = await self._reader.read(self._worker, count, seconds, reads_front=reads_front)
        if self._reader.was_interrupted:
            self._may_be_work = True
        if self._reader.was_cut:
            self.unknown_deliveries.check_now()
        return entries
