"""Finds deliveries that the server counts as this worker's and the worker does not know: their
answer or message was lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from docket.ledger import Ledger, UnknownEntry
from docket.storage.subscriptions import Subscriptions

from .claiming_service import ClaimingService
from .direct_delivery import DirectDelivery
from .intake import Intake, LeaseView

LOOK_SECONDS = 30.0
# An entry that was unknown once is looked at again soon.
AGAIN_SECONDS = 1.0


class UnknownDeliveries(ClaimingService):
    """Compares the server's list of our deliveries with our runs, whether or not slots are free.

    A delivery that is unknown twice, a second apart, is adopted: it begins if there is a slot for
    it, and else goes back at once, for a worker that is idle.
    """

    name = "unknown deliveries"

    def __init__(
        self,
        ledger: Ledger,
        subscriptions: Subscriptions,
        intake: Intake,
        direct_delivery: DirectDelivery,
        lease: LeaseView,
        labels: dict[str, str],
        most_pause: float,
        claims_under_way: Callable[[], set[str]],
    ) -> None:
        super().__init__(labels, most_pause, intake.refuse_adopted)
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._intake = intake
        self._direct_delivery = direct_delivery
        self._lease = lease
        self._claims_under_way = claims_under_way
        self._seen: list[UnknownEntry] = []
        self._wake = asyncio.Event()
        self._next_look = 0.0
        self.worker: str = ""
        self.worker_json: str = ""

    def open(self, worker: str, worker_json: str) -> None:
        self.worker, self.worker_json = worker, worker_json
        self._subscriptions.on_gap(self, self.look_now)

    def close(self) -> None:
        self._subscriptions.forget_gap(self)

    def move(self, worker: str) -> None:
        """We go on under a new id, under which nothing was delivered yet."""
        self.worker, self._seen = worker, []

    def look_now(self) -> None:
        """A read or a claim has failed, or messages may have been lost."""
        self._look_at(0.0)

    def look_soon(self) -> None:
        """A hand-over is due."""
        self._look_at(asyncio.get_running_loop().time() + AGAIN_SECONDS)

    async def step(self) -> None:
        await self._wait()
        loop = asyncio.get_running_loop()
        self._next_look = loop.time() + LOOK_SECONDS
        found = await self._look()
        if found:
            self._look_at(loop.time() + AGAIN_SECONDS)

    async def recover(self) -> None:
        self.look_now()

    def _look_at(self, when: float) -> None:
        if when < self._next_look:
            self._next_look = when
            self._wake.set()

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        while (left := self._next_look - loop.time()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()

    async def _look(self) -> bool:
        """Whether there is a reason to look again soon."""
        worker, due = self.worker, self._direct_delivery.due_epoch
        entries = await self._ledger.unknown_deliveries(worker, self._intake.epochs(), self._seen)
        if self.worker != worker:
            return True
        # Some may have become known while the question was under way.
        known, under_way = set(self._intake.epochs()), self._claims_under_way()
        entries = [e for e in entries if e.epoch not in known and e.id not in under_way]
        self._seen = entries
        if due is not None and due not in {entry.epoch for entry in entries}:
            self._direct_delivery.nothing_due(due)
        again = [entry for entry in entries if entry.seen_before]
        if again:
            await self._adopt(worker, again)
        return bool(entries) or self._direct_delivery.due_epoch is not None

    async def _adopt(self, worker: str, entries: list[UnknownEntry]) -> None:
        # Before the claim is sent: an answer or a message for one
        # of them that comes meanwhile must not begin it, too.
        self._intake.reserve(entry.epoch for entry in entries if entry.epoch)
        deliveries = await self._whole(self._ledger.claim(worker, self.worker_json, entries, runs_suspects=False))
        if deliveries is None:
            self._lease.renew_now()
            return
        if not deliveries or not await self._intake.is_still_ours(worker):
            return
        for delivery in deliveries:
            self._intake.adopt(delivery, has_slot=self._direct_delivery.slot_for(delivery.epoch))
        # An order to cancel one of them may wait, which came when nobody here knew the run.
        self._lease.renew_now()
