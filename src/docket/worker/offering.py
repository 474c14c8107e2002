"""The slot that the server may fill by itself while the fetcher waits (docs/design/lease-protocol.md, Hand-over)."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Callable

from docket.codec.packing import unpack_from_script
from docket.ledger import Delivery, KeptSlot, Ledger
from docket.storage.faults import PASSING
from docket.storage.keys import bytes_text
from docket.storage.subscriptions import Subscriptions

from .slots import Slots

logger = logging.getLogger("docket.worker")

# How long a worker that stops waits for a hand-over that is on its way.
LAST_WAIT_SECONDS = 1.0

# What is begun has the slot that was kept for it; what is refused has none.
Handed = Callable[[Delivery], None]


class Offer(enum.Enum):
    """Whether a slot is kept, and for what: one that may be offered, or a hand-over that is on its way."""

    NONE = "none"
    OFFERED = "offered"
    DUE = "due"


class Offering:
    """Keeps a slot for as long as the server may think that it is offered, and passes on what is handed over.

    Whatever happens to answers and messages, the slot is kept until it is certain that nothing will come for it, or
    until a look at the server's list of our deliveries has shown that nothing did.
    """

    def __init__(
        self, ledger: Ledger, subscriptions: Subscriptions, slots: Slots, begin: Handed, refuse: Handed
    ) -> None:
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._slots = slots
        self._begin = begin
        self._refuse = refuse
        self._worker: str | None = None
        self._resolved = asyncio.Event()
        self._closed = False
        # Its subscription may be at another node than the one that hands over, which would find nobody listening.
        self._possible = not ledger.server.is_cluster
        # Hand-overs that we have, those included that came another way than by their message.
        self._last_epoch = 0
        self._adopted: set[int] = set()
        self.state = Offer.NONE

    async def open(self, worker: str) -> None:
        """Listens for this worker id, and no longer for the one before."""
        await self.close()
        self._closed = False
        await self._subscriptions.listen(self._ledger.keys.hand_channel(worker), self._heard)
        self._worker = worker

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            self._subscriptions.unlisten(self._ledger.keys.hand_channel(worker), self._heard)
        self._let_go()

    # What the fetcher does

    @property
    def is_wanted(self) -> bool:
        """Whether a slot could be offered and is not."""
        return self.state is Offer.NONE and self._may_offer and self._slots.free >= 2

    def keep_for_take(self) -> KeptSlot | None:
        """The slot that goes along with a `take`: one that was offered, or one to offer if there is nothing to take."""
        offered = self.state is Offer.OFFERED
        if not offered:
            if not self.is_wanted:
                return None
            self._keep()
        # There has to be another one, for which a read can wait.
        return KeptSlot(offered, self._last_epoch, to_offer=self._slots.free > 0)

    def taken(self, kept: KeptSlot) -> None:
        """The server has said what became of the slot, or that is not known. The message of a hand-over may have been quicker
        than this answer."""
        if self.state is not Offer.OFFERED or kept.answer is None or kept.answer == 1:
            return
        if kept.answer == 0 or kept.answer == self._last_epoch:
            self._let_go()
        else:
            self.state = Offer.DUE

    def adopted(self, epochs: set[int]) -> None:
        """These were found without their message, which may yet come."""
        self._last_epoch = max(self._last_epoch, *epochs, 0)
        self._adopted |= epochs

    def nothing_due(self) -> None:
        """A look at our deliveries showed none that we do not have: what was due has come another way, or never will."""
        if self.state is Offer.DUE:
            self._let_go()

    # What the settler does

    def with_settlement(self, reading: int) -> str | None:
        """While a read for so many waits, another slot that is free may be offered: under which id."""
        if not reading or self.state is not Offer.NONE or not self._may_offer or self._slots.free <= reading:
            return None
        self._keep()
        return self._worker

    # The end

    async def withdraw(self) -> None:
        """The worker stops: nothing more shall come, and what is on its way is waited for."""
        self._closed = True
        if self.state is Offer.NONE or self._worker is None:
            return
        self._resolved.clear()
        with contextlib.suppress(TimeoutError, *PASSING):
            async with asyncio.timeout(LAST_WAIT_SECONDS):
                if await self._ledger.withdraw_offer(self._worker):
                    self._let_go()
                await self._resolved.wait()

    # Inside

    @property
    def _may_offer(self) -> bool:
        return self._possible and not self._closed and self._worker is not None

    def _keep(self) -> None:
        self._slots.take()
        self.state = Offer.OFFERED

    def _let_go(self) -> None:
        if self.state is not Offer.NONE:
            self.state = Offer.NONE
            self._slots.give_back()
            self._resolved.set()

    def _heard(self, message: bytes) -> None:
        key, record, epoch, claimed_ms = unpack_from_script(message)
        delivery = Delivery(bytes_text(key), record, epoch, claimed_ms)
        self._last_epoch = epoch
        if self.state is Offer.NONE:
            # One that we no longer count on: only if there is a slot for it.
            if self._slots.free < 1:
                self._refuse(delivery)
                return
            self._slots.take()
        self.state = Offer.NONE
        self._resolved.set()
        if epoch in self._adopted:
            self._adopted.discard(epoch)
            self._slots.give_back()
        elif self._closed:
            self._slots.give_back()
            self._refuse(delivery)
        else:
            self._begin(delivery)
