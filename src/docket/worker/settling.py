"""Writes down how runs ended, many at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from docket.ledger import Answer, Ledger, Settlement
from docket.ledger.ledger import BATCH
from docket.storage.cancelling import cancel_and_wait
from docket.storage.faults import PASSING

from .backoff import Backoff

logger = logging.getLogger("docket.worker")

OnAnswer = Callable[[Answer], None]


class SlotOffers(Protocol):
    """What may be said along with a settlement."""

    def offer_slot(self) -> str | None: ...

    def unsure(self) -> None: ...


class Settler:
    """Flushes at once when the line is idle; while a flush is under way, endings gather for the next.

    What cannot be written now is tried again until it is answered: the epoch makes a repeat harmless.
    """

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self._name = name
        self._waiting: list[tuple[Settlement, OnAnswer]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._backoff = Backoff(most=1.0)
        self._closed = False
        self.unfinished: int | None = None
        self.offers: SlotOffers | None = None

    @property
    def backlog(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return self._flushing is None and not self._waiting

    def submit(self, settlement: Settlement, on_answer: OnAnswer) -> None:
        if self._closed:
            # The worker has stopped without this run; others have it.
            on_answer(Answer.LOST)
            return
        self._waiting.append((settlement, on_answer))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name=f"{self._name} - settling")

    async def close(self) -> None:
        """What could not be written until now is given up; the worker waits for its endings before it closes."""
        self._closed = True
        if self._flushing is not None:
            await cancel_and_wait([self._flushing], "docket: the worker stops")

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                await self._send(batch)
        finally:
            self._flushing = None

    async def _send(self, batch: list[tuple[Settlement, OnAnswer]]) -> None:
        offering = self.offers.offer_slot() if self.offers is not None else None
        while True:
            try:
                settlements = [settlement for settlement, _ in batch]
                self.unfinished, answers = await self._ledger.settle(settlements, offering)
            except PASSING as error:
                if offering is not None and self.offers is not None:
                    # The server may have taken it, and somebody it: it is not made twice.
                    offering = None
                    self.offers.unsure()
                logger.warning("settling: %s; trying again", error)
                await self._backoff.pause()
                continue
            except Exception as error:
                if offering is not None and self.offers is not None:
                    self.offers.unsure()
                await self._send_singly(batch, error)
                return
            self._backoff.reset()
            for (settlement, on_answer), answer in zip(batch, answers, strict=True):
                _tell(settlement, on_answer, answer)
            return

    async def _send_singly(self, batch: list[tuple[Settlement, OnAnswer]], error: Exception) -> None:
        """The server refuses the batch: one bad settlement must not hold up the others."""
        if len(batch) > 1:
            for item in batch:
                await self._send([item])
            return
        settlement, on_answer = batch[0]
        logger.error("cannot settle task %r: %s; it will be recovered when this worker stops", settlement.key, error)
        _tell(settlement, on_answer, Answer.LOST)


def _tell(settlement: Settlement, on_answer: OnAnswer, answer: Answer) -> None:
    """A report that fails (a metrics exporter, a log handler) must not keep the others from being told."""
    try:
        on_answer(answer)
    except Exception:
        logger.exception("after settling task %r", settlement.key)
