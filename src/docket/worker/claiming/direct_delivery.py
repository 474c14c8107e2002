"""Reserves a slot that the server may fill while the fetcher waits
(docs/design/lease-protocol.md, Direct delivery)."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from hmac import compare_digest

from docket.codec.packing import unpack_from_script
from docket.errors import TRANSIENT, Undecodable
from docket.ledger import Delivery, Ledger, ReservedSlot, SlotOffer
from docket.storage.keys import bytes_text
from docket.storage.subscriptions import Inquiry, Subscriptions
from docket.worker.running.runs import Slots

logger: logging.Logger = logging.getLogger("docket.worker")

# How long a worker that stops waits for a direct delivery that is due.
LAST_WAIT_SECONDS = 1.0

# The run of an older message may have ended, or may be cancelled or replaced.
LATE_SECONDS = 1.0

SECRET_SIZE = 16
# Messages with one of these secrets are late, not forged.
MOST_SPENT = 16

# No epoch and no time is larger: epochs are microseconds, and a test may set the clock to the year
# 9999.
_MOST = 10**18

# `receive` uses the slot that was reserved; `refuse` needs none.
OnDelivery = Callable[[Delivery], None]


class Offer(enum.Enum):
    """Whether a slot is reserved: for an offer that the server
    may know of, or for a direct delivery that is due."""

    NONE = "none"
    OFFERED = "offered"
    DUE = "due"


class OfferSecrets:
    """Secrets for offers. It asks the system for many at once, because a busy worker makes
    thousands of offers a second."""

    def __init__(self) -> None:
        self._ready = b""

    def new(self) -> bytes:
        if not self._ready:
            self._ready = os.urandom(SECRET_SIZE * 64)
        secret, self._ready = self._ready[:SECRET_SIZE], self._ready[SECRET_SIZE:]
        return secret


class DirectDelivery:
    """Reserves a slot for as long as the server may count it as offered, and passes direct
    deliveries on.

    Answers and messages may be lost or late. The slot stays reserved
    until it is certain that nothing comes for it, or until the
    server's list of this worker's deliveries shows that nothing came.
    """

    def __init__(
        self,
        ledger: Ledger,
        subscriptions: Subscriptions,
        slots: Slots,
        is_known: Callable[[int], bool],
        receive: OnDelivery,
        refuse: OnDelivery,
        age: Callable[[float], float],
        on_late: Callable[[], None],
    ) -> None:
        """`age` returns how many seconds ago a time on the server's clock was. `on_late` makes the
        worker compare its runs with the server's list of this worker's deliveries."""
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._slots = slots
        self._is_known = is_known
        self._receive = receive
        self._refuse = refuse
        self._age = age
        self._on_late = on_late
        self._worker: str | None = None
        self._resolved = asyncio.Event()
        self._closed = False
        self._last_epoch = 0
        # The offer may be gone although the state is OFFERED: the next `take` asks the server.
        self._in_doubt = False
        # The run that is due; None unless the state is DUE.
        self.due_epoch: int | None = None
        self.state: Offer = Offer.NONE
        # The secret of the offer, and those of earlier offers.
        self._new_secret = OfferSecrets().new
        self._secret = b""
        self._spent: deque[bytes] = deque(maxlen=MOST_SPENT)
        self._inquiry = Inquiry(on_late)

    async def open(self, worker: str) -> None:
        """Listens for this worker id, and no longer for the previous one."""
        await self.close()
        self._closed = False
        await self._subscriptions.listen(self._ledger.keys.delivery_channel(worker), self._on_message)
        self._worker = worker

    async def close(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Stops listening for the present id. The reserved slot is free again."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._subscriptions.unlisten(self._ledger.keys.delivery_channel(worker), self._on_message)
        self._inquiry.close()
        self._let_go()

    # Called by the fetcher

    @property
    def is_wanted(self) -> bool:
        """Whether there is a slot to offer, or the server must confirm the offer."""
        return self._in_doubt or self._can_offer

    def reserve_for_take(self) -> ReservedSlot | None:
        """The slot that a `take` mentions: the offered one, or one to offer if no task is ready."""
        offered = self.state is Offer.OFFERED
        if not offered:
            if not self._can_offer:
                return None
            self._reserve()
        elif not self._secret:
            self._secret = self._new_secret()
        self._in_doubt = False
        # The blocked read needs another free slot.
        return ReservedSlot(offered, self._last_epoch, to_offer=self._slots.free > 0, secret=self._secret)

    def taken(self, reserved: ReservedSlot) -> None:
        """Applies the answer of a `take`, if there is one. The message of a direct delivery may
        have come before this answer."""
        if self.state is not Offer.OFFERED or reserved.answer is None or reserved.answer == 1:
            return
        if reserved.answer == 0 or reserved.answer == self._last_epoch or self._is_known(reserved.answer):
            self._let_go()
        else:
            self.state, self.due_epoch = Offer.DUE, reserved.answer

    # Called by the check for unknown deliveries

    def slot_for(self, epoch: int) -> bool:
        """Whether a slot is reserved for this run, whose message has not come. If so, the slot is
        the caller's from now on."""
        if self.due_epoch != epoch:
            return False
        self._resolve()
        return True

    def nothing_due(self, epoch: int) -> None:
        """The server does not list this run among this worker's unknown deliveries: it came another
        way, or will not come."""
        if self.due_epoch == epoch:
            self._let_go()

    def dropped(self) -> None:
        """The server has withdrawn the offer, and no direct delivery is due."""
        self._let_go()

    # Called by the settler

    def with_settlement(self, reading: int) -> SlotOffer | None:
        """The slot that a settlement offers. A free slot that the blocked read, which waits for
        `reading` entries, does not need may be offered."""
        if not reading or self.state is not Offer.NONE or not self._may_offer or self._slots.free <= reading:
            return None
        assert self._worker is not None
        self._reserve()
        return SlotOffer(self._worker, self._secret)

    # The end

    def refuse_from_now(self) -> None:
        """The worker begins to stop: direct deliveries go back untouched."""
        self._closed = True

    async def withdraw(self) -> None:
        """The worker stops: it withdraws the offer and waits for a direct delivery that is due."""
        self._closed = True
        if self.state is Offer.NONE or self._worker is None:
            return
        self._resolved.clear()
        with contextlib.suppress(TimeoutError, *TRANSIENT):
            async with asyncio.timeout(LAST_WAIT_SECONDS):
                if await self._ledger.deliveries.withdraw_offer(self._worker):
                    self._let_go()
                await self._resolved.wait()

    # The slot

    @property
    def _may_offer(self) -> bool:
        if self._closed or self._worker is None:
            return False
        offers_from = self._slots.offers_from
        return not offers_from or time.monotonic() >= offers_from

    @property
    def _can_offer(self) -> bool:
        return self.state is Offer.NONE and self._may_offer and self._slots.free >= 2

    def _reserve(self) -> None:
        self._slots.take()
        self._spend_secret()
        self._secret = self._new_secret()
        self.state = Offer.OFFERED

    def _spend_secret(self) -> None:
        """From now on a message with this secret is late or repeated."""
        if self._secret:
            self._spent.append(self._secret)
            self._secret = b""

    def _let_go(self) -> None:
        if self.state is not Offer.NONE:
            self._resolve()
            self._slots.give_back()

    def _resolve(self) -> None:
        """The slot is no longer reserved."""
        self.state, self.due_epoch, self._in_doubt = Offer.NONE, None, False
        self._resolved.set()

    def _on_message(self, message: bytes) -> None:
        """Anybody may have published the message. It counts only if it has the secret of the offer
        whose slot is reserved."""
        secret, body = message[:SECRET_SIZE], message[SECRET_SIZE:]
        if self.state is Offer.NONE or not compare_digest(secret, self._secret):
            self._ignore(secret)
            return
        self._spend_secret()
        try:
            delivery, sent_ms = read_delivery(body)
        except Undecodable:
            self._ignore(secret)
            return
        epoch = self._last_epoch = delivery.epoch
        if self._is_known(epoch):
            self._on_known(epoch)
        elif self._age(sent_ms) > LATE_SECONDS:
            self._on_late_message(epoch)
        else:
            self._resolve()
            if self._closed:
                self._slots.give_back()
                self._refuse(delivery)
            else:
                self._receive(delivery)

    def _ignore(self, secret: bytes) -> None:
        """The message is late, of another release, or forged. The server's list of this worker's
        deliveries shows whether there is a run."""
        if secret not in self._spent and secret != self._secret:
            self._subscriptions.ignored.note("a delivery")
        self._inquiry.request()

    def _on_known(self, epoch: int) -> None:
        """The run was started, adopted, requeued or ended before its message came."""
        if self.due_epoch == epoch:
            self._let_go()
        elif self.state is Offer.OFFERED:
            self._in_doubt = True

    def _on_late_message(self, epoch: int) -> None:
        """The run may no longer count, so the server is
        asked. The slot stays reserved for the run."""
        if self.state is Offer.OFFERED:
            self.state, self.due_epoch = Offer.DUE, epoch
        self._on_late()


def read_delivery(body: bytes) -> tuple[Delivery, float]:
    """The delivery in a message, and when the server sent it. Raises Undecodable: whoever reads the
    keys of the docket knows the secret, and may send anything."""
    try:
        key, record, epoch, claimed_ms, sent_ms = unpack_from_script(body)
        name = bytes_text(key)
    except (ValueError, TypeError, AttributeError) as error:
        raise Undecodable(f"the message is not a delivery: {error}") from None
    is_sound = isinstance(record, bytes) and isinstance(epoch, int) and 0 < epoch < _MOST
    if not is_sound or not all(_is_time(ms) for ms in (claimed_ms, sent_ms)):
        raise Undecodable("the message is not a delivery: its fields have other types")
    return Delivery(name, record, epoch, claimed_ms), sent_ms


def _is_time(ms: object) -> bool:
    return isinstance(ms, int | float) and -_MOST < ms < _MOST
