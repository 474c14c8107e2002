"""Moves tasks to the stream when they fall due."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

from docket.errors import DocketError
from docket.ledger import Duty, Ledger
from docket.storage.subscriptions import Subscriptions

from .duties import Duties
from .registration import Identity
from .server_clock import steady_seconds
from .service import Service

# A backstop. A message about an earlier time may be lost,
# but a subscription that was deaf for a while wakes us too.
LONGEST_SLEEP = 30.0
# A deputy looks this long after a task should have been staged.
DEPUTY_SECONDS = 0.5
RESIGN_SECONDS = 1.0


class Stager(Service):
    """Sleeps until the next task is due; an earlier arrival
    wakes it. One worker of the fleet stages for all.

    The leader stages at the due time. Its deputy looks half a second later, with one plain command,
    and takes over if the task is still there. The stagers of all other workers sleep until they get
    a duty or a renewal summons them.
    """

    name = "scheduler"

    def __init__(
        self,
        ledger: Ledger,
        subscriptions: Subscriptions,
        duties: Duties,
        identity: Identity,
        now_ms: Callable[[], float],
        labels: dict[str, str],
        most_pause: float,
    ) -> None:
        super().__init__(labels, most_pause)
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._duties = duties
        self._identity = identity
        self._now_ms = now_ms
        self._wake = asyncio.Event()
        self._next_ms = math.inf
        self._listens = self._summoned = False
        # Something has happened that only the server can explain.
        self._unsure = True

    async def open(self) -> None:
        self._duties.on_change(self._look_soon)
        self._subscriptions.on_gap(self, self._look_soon)

    async def close(self) -> None:
        self._subscriptions.forget_gap(self)
        self._unlisten()

    async def run(self) -> None:
        """Until cancelled; then another worker gets the
        duty, however long this one takes to drain."""
        try:
            await super().run()
        finally:
            await self._resign()

    def summon(self) -> None:
        """A renewal has found a task overdue: leader and deputy are held up."""
        self._summoned = True
        self._look_soon()

    async def step(self) -> None:
        self._wake.clear()
        summoned, self._summoned = self._summoned, False
        duty = self._duties.duty
        if duty is Duty.NONE and not summoned:
            self._unlisten()
            self.is_well()
            await self._wake.wait()
            return
        await self._listen()
        unsure, self._unsure = self._unsure, False
        # A time that is heard before the answer is news,
        # whatever was next before: the answer may be older.
        self._next_ms = math.inf
        try:
            if duty is Duty.DEPUTY and not summoned and not unsure and not await self._is_overdue():
                await self._sleep(DEPUTY_SECONDS)
            else:
                await self._stage(summoned)
        except BaseException:
            self._unsure = True
            raise

    async def _stage(self, summoned: bool) -> None:
        staged = await self._ledger.stage(worker=self._identity.id, summoned=summoned)
        self.is_well()
        if staged.duty is not self._duties.duty:
            self._duties.assign(staged.duty)
            self._unsure = False
        if staged.duty is Duty.NONE:
            return
        self._heard_due(staged.next_ms)
        if staged.duty is Duty.LEADER:
            await self._sleep(0.0, staged.now_ms)
        else:
            # Where tasks are overdue all the same, the leader is working them off.
            await self._sleep(DEPUTY_SECONDS, staged.now_ms, least=DEPUTY_SECONDS)

    async def _is_overdue(self) -> bool:
        self._heard_due(await self._ledger.next_due_ms())
        self.is_well()
        return self._now_ms() - self._next_ms >= DEPUTY_SECONDS * 1000

    async def _sleep(self, longer: float, server_ms: float | None = None, *, least: float = 0.0) -> None:
        """Until the next due time that is known and as many
        seconds longer, or until something else happens."""
        began, server_ms = steady_seconds(), server_ms if server_ms is not None else self._now_ms()
        while not self._unsure:
            slept = steady_seconds() - began
            until_due = (self._next_ms - server_ms) / 1000 + longer
            left = min(max(until_due, least), LONGEST_SLEEP) - slept
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
                    self._wake.clear()

    async def _listen(self) -> None:
        if not self._listens:
            await self._subscriptions.listen(self._ledger.keys.wake_channel, self._heard)
            self._listens = True

    def _unlisten(self) -> None:
        if self._listens:
            self._listens = False
            self._subscriptions.unlisten(self._ledger.keys.wake_channel, self._heard)

    def _heard(self, message: bytes) -> None:
        """An earlier due time than any before; 0 if a worker with a duty is gone."""
        due_ms = float(message)
        if due_ms <= 0:
            self._look_soon()
        elif due_ms < self._next_ms:
            self._heard_due(due_ms)
            self._wake.set()

    def _heard_due(self, due_ms: float | None) -> None:
        self._next_ms = min(self._next_ms, math.inf if due_ms is None else due_ms)

    def _look_soon(self) -> None:
        self._unsure = True
        self._wake.set()

    async def _resign(self) -> None:
        has_duty = self._duties.duty is not Duty.NONE
        self._duties.resign()
        if has_duty:
            with contextlib.suppress(TimeoutError, DocketError):
                async with asyncio.timeout(RESIGN_SECONDS):
                    await self._ledger.resign(self._identity.id)
