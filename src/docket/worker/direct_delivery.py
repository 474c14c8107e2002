"""Reserves a slot that the server may fill while the fetcher waits
(docs/design/lease-protocol.md, Direct delivery)."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Callable

from docket.codec.packing import unpack_from_script
from docket.errors import TRANSIENT
from docket.ledger import Delivery, Ledger, ReservedSlot
from docket.storage.keys import bytes_text
from docket.storage.subscriptions import Subscriptions

from .slots import Slots

logger: logging.Logger = logging.getLogger("docket.worker")

# How long a worker that stops waits for a hand-over that is on its way.
LAST_WAIT_SECONDS = 1.0

# A message that is older may be of a run that has ended, or was cancelled or replaced.
LATE_SECONDS = 1.0

# What is begun has the slot that was kept for it; what is refused has none.
Handed = Callable[[Delivery], None]


class Offer(enum.Enum):
    """Whether a slot is kept, and for what: one that may
    be offered, or a hand-over that is on its way."""

    NONE = "none"
    OFFERED = "offered"
    DUE = "due"


class DirectDelivery:
    """Keeps a slot for as long as the server may think
    that it is offered, and passes on what is handed over.

    Whatever happens to answers and messages, the slot is kept until it is certain that nothing will
    come for it, or until a look at the server's list of our deliveries has shown that nothing did.
    """

    def __init__(
        self,
        ledger: Ledger,
        subscriptions: Subscriptions,
        slots: Slots,
        is_known: Callable[[int], bool],
        begin: Handed,
        refuse: Handed,
        age: Callable[[float], float],
        on_late: Callable[[], None],
    ) -> None:
        """`age` tells how many seconds ago a time of the server
        was; `on_late` looks for what a late message told of."""
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._slots = slots
        self._is_known = is_known
        self._begin = begin
        self._refuse = refuse
        self._age = age
        self._on_late = on_late
        self._worker: str | None = None
        self._resolved = asyncio.Event()
        self._closed = False
        # Its subscription may be at another node than the one
        # that hands over, which would find nobody listening.
        self._possible = not ledger.server.is_cluster
        self._last_epoch = 0
        # An offer may be gone though it counts as made: the next `take` asks.
        self._in_doubt = False
        # The hand-over that is on its way; None unless the state is DUE.
        self.due_epoch: int | None = None
        self.state: Offer = Offer.NONE

    async def open(self, worker: str) -> None:
        """Listens for this worker id, and no longer for the one before."""
        await self.close()
        self._closed = False
        await self._subscriptions.listen(self._ledger.keys.delivery_channel(worker), self._heard)
        self._worker = worker

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            self._subscriptions.unlisten(self._ledger.keys.delivery_channel(worker), self._heard)
        self._let_go()

    # What the fetcher does

    @property
    def is_wanted(self) -> bool:
        """Whether a slot could be offered and is not, or
        the server has to say whether the offer stands."""
        return self._in_doubt or self._has_one_to_offer

    def keep_for_take(self) -> ReservedSlot | None:
        """The slot that goes along with a `take`: one that was
        offered, or one to offer if there is nothing to take."""
        offered = self.state is Offer.OFFERED
        if not offered:
            if not self._has_one_to_offer:
                return None
            self._keep()
        self._in_doubt = False
        # There has to be another one, for which a read can wait.
        return ReservedSlot(offered, self._last_epoch, to_offer=self._slots.free > 0)

    def taken(self, kept: ReservedSlot) -> None:
        """The server has said what became of the slot, or that is not known. The message of a
        hand-over may have been quicker than this answer."""
        if self.state is not Offer.OFFERED or kept.answer is None or kept.answer == 1:
            return
        if kept.answer == 0 or kept.answer == self._last_epoch or self._is_known(kept.answer):
            self._let_go()
        else:
            self.state, self.due_epoch = Offer.DUE, kept.answer

    # What the look for unknown deliveries does

    def slot_for(self, epoch: int) -> bool:
        """Whether a slot is kept for this run, whose message
        has not come. It is the caller's from now on."""
        if self.due_epoch != epoch:
            return False
        self._resolve()
        return True

    def nothing_due(self, epoch: int) -> None:
        """The server does not count this hand-over among our
        unknown deliveries: it came another way, or never will."""
        if self.due_epoch == epoch:
            self._let_go()

    def dropped(self) -> None:
        """The server has taken the offer back, and nothing is on its way for it."""
        self._let_go()

    # What the settler does

    def with_settlement(self, reading: int) -> str | None:
        """While a read for so many waits, another slot
        that is free may be offered: under which id."""
        if not reading or self.state is not Offer.NONE or not self._may_offer or self._slots.free <= reading:
            return None
        self._keep()
        return self._worker

    # The end

    def refuse_from_now(self) -> None:
        """The worker begins to stop: what is still handed over goes back untouched."""
        self._closed = True

    async def withdraw(self) -> None:
        """The worker stops: nothing more shall come, and what is on its way is waited for."""
        self._closed = True
        if self.state is Offer.NONE or self._worker is None:
            return
        self._resolved.clear()
        with contextlib.suppress(TimeoutError, *TRANSIENT):
            async with asyncio.timeout(LAST_WAIT_SECONDS):
                if await self._ledger.withdraw_offer(self._worker):
                    self._let_go()
                await self._resolved.wait()

    # Inside

    @property
    def _may_offer(self) -> bool:
        return self._possible and not self._closed and self._worker is not None

    @property
    def _has_one_to_offer(self) -> bool:
        return self.state is Offer.NONE and self._may_offer and self._slots.free >= 2

    def _keep(self) -> None:
        self._slots.take()
        self.state = Offer.OFFERED

    def _let_go(self) -> None:
        if self.state is not Offer.NONE:
            self._resolve()
            self._slots.give_back()

    def _resolve(self) -> None:
        """The slot is no longer kept."""
        self.state, self.due_epoch, self._in_doubt = Offer.NONE, None, False
        self._resolved.set()

    def _heard(self, message: bytes) -> None:
        key, record, epoch, claimed_ms, sent_ms = unpack_from_script(message)
        delivery = Delivery(bytes_text(key), record, epoch, claimed_ms)
        self._last_epoch = epoch
        if self._is_known(epoch):
            self._heard_late(epoch)
            return
        if self._age(sent_ms) > LATE_SECONDS:
            self._distrust(epoch)
            return
        if self.state is Offer.NONE:
            # One that we no longer count on: only if there is a slot for it.
            if self._slots.free < 1:
                self._refuse(delivery)
                return
            self._slots.take()
        self._resolve()
        if self._closed:
            self._slots.give_back()
            self._refuse(delivery)
        else:
            self._begin(delivery)

    def _heard_late(self, epoch: int) -> None:
        """The run is under way, or was adopted, handed back or ended before its message came."""
        if self.due_epoch == epoch:
            self._let_go()
        elif self.state is Offer.OFFERED:
            self._in_doubt = True

    def _distrust(self, epoch: int) -> None:
        """The run may not count any more: the server has
        to say. A slot is kept for it if there is one."""
        if self.state is Offer.NONE and self._slots.free > 0:
            self._keep()
        if self.state is Offer.OFFERED:
            self.state, self.due_epoch = Offer.DUE, epoch
        self._on_late()
