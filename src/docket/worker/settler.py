"""Writes down how runs ended, many at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from docket._aio import Backoff, cancel_and_wait
from docket.errors import TRANSIENT, NotOpen
from docket.ledger import Ledger, Settlement, SettleResult, requeue
from docket.ledger.batcher import BATCH_BYTES, batch_end
from docket.ledger.tasks import BATCH
from docket.storage.server import ANSWER_SECONDS

from .write_limits import StuckClock, WriteLimits

logger: logging.Logger = logging.getLogger("docket.worker")

OnAnswer = Callable[[SettleResult], None]


class SlotOffers(Protocol):
    """What may be said along with a settlement."""

    def offer_slot(self) -> str | None: ...

    def unsure(self) -> None: ...


@dataclass(slots=True, eq=False)
class Item:
    """An ending that is not written down yet, and since when."""

    settlement: Settlement
    on_answer: OnAnswer
    since: float
    # How much longer than usual its answer may take; doubled each time it was late alone.
    patience: float = 1.0
    # How long it could not be written, from its first failure alone.
    stuck: StuckClock | None = None
    # It stands for an ending that could not be written.
    is_last_resort: bool = False


def _weight(item: Item) -> int:
    return item.settlement.weight


class Settler:
    """Flushes at once when the line is idle; while a
    flush is under way, endings gather for the next.

    What cannot be written now is tried again until it is answered: the epoch makes a repeat
    harmless. A batch that was not answered is halved. A single ending that was not answered goes
    behind the others, and its answer may take twice as long; one that never arrives while the lease
    is renewed is given up in the end (`_shrunk`). Only the worker ends that, with `close()`: an
    event loop that ends cancels every task, and endings are to be written all the same.
    """

    def __init__(self, ledger: Ledger, name: str, limits: WriteLimits, *, offers: SlotOffers) -> None:
        self._ledger = ledger
        self._limits = limits
        self._outages = ledger.server.outages
        self._name = name
        self._waiting: list[Item] = []
        self._under_way: list[Item] = []
        self._flushing: asyncio.Task[None] | None = None
        self._storing: set[asyncio.Task[None]] = set()
        self._backoff = Backoff(most=1.0)
        self._most, self._budget = BATCH, BATCH_BYTES
        self._closed = False
        self._offers = offers

    @property
    def oldest_age(self) -> float:
        """Seconds that the oldest ending has waited to
        be written down. Safe to call from any thread."""
        waiting = [*self._waiting, *self._under_way]
        return time.monotonic() - min(item.since for item in waiting) if waiting else 0.0

    def submit(self, settlement: Settlement, on_answer: OnAnswer) -> None:
        if self._closed:
            # The worker has stopped without this run; others have it.
            on_answer(SettleResult.LOST)
            return
        self._waiting.append(Item(settlement, on_answer, time.monotonic()))
        if self._flushing is None:
            self._start()

    def _start(self) -> None:
        self._flushing = asyncio.create_task(self._flush(), name=f"{self._name} - settling")

    async def close(self) -> None:
        """What could not be written until now is given up;
        the worker waits for its endings before it closes."""
        self._closed = True
        under_way = [*self._storing, *([self._flushing] if self._flushing is not None else ())]
        await cancel_and_wait(under_way, "docket: the worker stops")
        self._outages.forget(self)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                end = batch_end(self._waiting, 0, self._most, _weight, self._budget)
                batch, self._waiting = self._waiting[:end], self._waiting[end:]
                self._under_way = batch
                await self._send(batch)
                self._under_way = []
        finally:
            self._under_way = []
            self._flushing = None
            if self._waiting and not self._closed:
                self._start()

    async def _send(self, batch: list[Item]) -> None:
        offered_by = self._offers.offer_slot()
        patience = ANSWER_SECONDS * batch[0].patience if len(batch) == 1 else None
        try:
            settlements = [item.settlement for item in batch]
            _, answers = await self._ledger.settle(settlements, offered_by, patience=patience)
        except asyncio.CancelledError:
            self._waiting = batch + self._waiting
            raise
        except Exception as error:
            if offered_by is not None:
                # The server may have taken it, and somebody it.
                self._offers.unsure()
            if isinstance(error, TRANSIENT):
                self._outages.failed(self, "settling", error)
                self._put_back(batch)
                await self._outages.pause(self._backoff.next_pause())
            elif isinstance(error, NotOpen):
                self._give_up(batch, error)
            else:
                await self._send_singly(batch, error)
            return
        self._backoff.reset()
        self._outages.passed(self)
        self._most, self._budget = min(self._most * 2, BATCH), min(self._budget * 2, BATCH_BYTES)
        for item, answer in zip(batch, answers, strict=True):
            if answer is SettleResult.PAYLOAD_MISSING:
                self._store_again(item)
            else:
                _tell(item, answer)

    def _store_again(self, item: Item) -> None:
        """Its payload has expired: the server was away for longer than that is kept."""
        task = asyncio.create_task(self._store_and_submit(item), name=f"{self._name} - storing again")
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def _store_and_submit(self, item: Item) -> None:
        payload = item.settlement.payload
        assert payload is not None
        backoff = Backoff(most=1.0)
        try:
            while True:
                try:
                    await self._ledger.payloads.store(payload, patience=item.patience)
                    break
                except TRANSIENT as error:
                    self._outages.failed(item, "storing a result again", error)
                    item.patience *= 2
                    await self._outages.pause(backoff.next_pause())
            self._outages.passed(item)
        finally:
            self._outages.forget(item)
        self.submit(item.settlement, item.on_answer)

    def _put_back(self, batch: list[Item]) -> None:
        """The next batch is half as large; an ending that failed alone lets the others go first."""
        if len(batch) > 1:
            self._most, self._budget = len(batch) // 2, max(sum(map(_weight, batch)) // 2, 1)
            self._waiting = batch + self._waiting
        else:
            batch[0].patience *= 2
            self._most = 1
            self._waiting += self._shrunk(batch[0])

    def _shrunk(self, item: Item) -> list[Item]:
        """What is to be tried next in place of an ending that failed alone. One that never arrives
        while the lease is renewed becomes a hand-back of a few bytes; if not even that arrives, the
        worker lets its lease go."""
        if item.stuck is None:
            item.stuck = self._limits.clock(item.settlement.weight)
        if not item.stuck.is_over:
            return [item]
        key, seconds = item.settlement.key, item.stuck.seconds
        if item.is_last_resort:
            logger.error("task %r could not be handed back for %.0f s; the lease is let go", key, seconds)
            _tell(item, SettleResult.LOST)
            self._limits.let_go()
            return []
        logger.error(
            "the ending of task %r could not be written for %.0f s; it goes back to be run again", key, seconds
        )
        small = requeue(key, item.settlement.epoch, begun=True)
        small.worker = item.settlement.worker
        return [Item(small, lambda _: _tell(item, SettleResult.LOST), item.since, is_last_resort=True)]

    def _give_up(self, batch: list[Item], error: NotOpen) -> None:
        logger.error("%d ending(s) could not be written: %s; others will run those tasks again", len(batch), error)
        for item in batch:
            _tell(item, SettleResult.LOST)

    async def _send_singly(self, batch: list[Item], error: Exception) -> None:
        """The server refuses the batch: one bad settlement must not hold up the others."""
        if len(batch) > 1:
            for number, item in enumerate(batch):
                try:
                    await self._send([item])
                except asyncio.CancelledError:
                    self._waiting += batch[number + 1 :]
                    raise
            return
        key = batch[0].settlement.key
        logger.error("cannot settle task %r: %s; it will be recovered when this worker stops", key, error)
        _tell(batch[0], SettleResult.LOST)


def _tell(item: Item, answer: SettleResult) -> None:
    """A report that fails (a metrics exporter, a log
    handler) must not keep the others from being told."""
    try:
        item.on_answer(answer)
    except Exception:
        logger.exception("after settling task %r", item.settlement.key)
