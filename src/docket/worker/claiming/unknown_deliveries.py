"""Finds deliveries that the server has given to this worker but the worker does not know, because
the answer or message was lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from docket.ledger import Ledger, UnknownEntry
from docket.storage.keys import bytes_text
from docket.storage.subscriptions import Subscriptions
from docket.worker.lease.lease import LeaseView
from docket.worker.service import Service

from .direct_delivery import DirectDelivery
from .intake import ClaimGuard, Intake

CHECK_SECONDS = 30.0
# The next check comes this soon after an unknown delivery was found.
RECHECK_SECONDS = 1.0


class UnknownDeliveries(Service):
    """Compares the server's list of this worker's
    deliveries with its runs, whether or not slots are free.

    A delivery that is unknown in two checks, a second apart, is adopted. It begins if there is a
    slot for it. Otherwise it is requeued at once, for an idle worker.
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
        super().__init__(labels, most_pause)
        self._guard = ClaimGuard(intake.refuse_adopted)
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._intake = intake
        self._direct_delivery = direct_delivery
        self._lease = lease
        self._claims_under_way = claims_under_way
        self._seen: list[UnknownEntry] = []
        self._wake = asyncio.Event()
        self._next_check = 0.0
        self.worker: str = ""
        self.worker_json: str = ""

    def open(self, worker: str, worker_json: str) -> None:
        self.worker, self.worker_json = worker, worker_json
        self._subscriptions.on_gap(self, self.check_now)

    def close(self) -> None:
        self._subscriptions.forget_gap(self)

    def move(self, worker: str) -> None:
        """The worker continues under a new id, which has no deliveries yet."""
        self.worker, self._seen = worker, []

    def check_now(self) -> None:
        """A read or a claim has failed, or messages may have been lost."""
        self._check_at(0.0)

    def check_soon(self) -> None:
        """The server has made a direct delivery whose message has not arrived yet."""
        self._check_at(asyncio.get_running_loop().time() + RECHECK_SECONDS)

    async def run(self) -> None:
        await self._guard.run(super().run(), f"{self._labels['docket.name']} - {self.name}")

    async def step(self) -> None:
        await self._wait()
        loop = asyncio.get_running_loop()
        self._next_check = loop.time() + CHECK_SECONDS
        found = await self._check()
        if found:
            self._check_at(loop.time() + RECHECK_SECONDS)

    async def recover(self) -> None:
        self.check_now()

    def _check_at(self, when: float) -> None:
        if when < self._next_check:
            self._next_check = when
            self._wake.set()

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        while (left := self._next_check - loop.time()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()

    async def _check(self) -> bool:
        """Compares once. Returns whether the next check should follow soon."""
        worker, due = self.worker, self._direct_delivery.due_epoch
        entries = await self._ledger.deliveries.unknown_deliveries(worker, self._intake.epochs(), self._seen)
        if self.worker != worker:
            return True
        # Some deliveries may have become known while the request was under way.
        known, under_way = set(self._intake.epochs()), self._claims_under_way()
        entries = [e for e in entries if e.epoch not in known and e.id not in under_way]
        self._seen = entries
        if due is not None and due not in {entry.epoch for entry in entries}:
            self._direct_delivery.nothing_due(due)
        again = [entry for entry in entries if entry.seen_before]
        if any(entry.is_damaged for entry in again):
            # The body whose run record is damaged may still run here: its task waits for its end.
            keys = self._intake.keys()
            again = [entry for entry in again if not (entry.is_damaged and bytes_text(entry.key) in keys)]
        if again:
            await self._adopt(worker, again)
        return bool(entries) or self._direct_delivery.due_epoch is not None

    async def _adopt(self, worker: str, entries: list[UnknownEntry]) -> None:
        # Reserve the epochs before the claim is sent: a late answer or message must not begin one
        # of these deliveries a second time.
        self._intake.reserve(entry.epoch for entry in entries if entry.epoch > 0)
        deliveries = await self._guard.answer(
            self._ledger.deliveries.claim(worker, self.worker_json, entries, runs_suspects=False)
        )
        if deliveries is None:
            self._lease.renew_now()
            return
        if not deliveries or not await self._intake.is_still_ours(worker):
            return
        for delivery in deliveries:
            self._intake.adopt(delivery, has_slot=self._direct_delivery.slot_for(delivery.epoch))
        # Renew to fetch cancel requests that arrived while the worker did not know these runs.
        self._lease.renew_now()
