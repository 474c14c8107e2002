"""Numbers about the fleet: one worker publishes gauges, the leader keeps the statistics."""

from __future__ import annotations

import asyncio

from docket.dependencies.plan import plan_count
from docket.instrumentation import (
    CACHE_SIZE,
    DEAD_LETTERS,
    DEAD_LETTERS_DROPPED,
    FLEET_RUNNING,
    HELD_TASKS,
    OLDEST_WAITING_AGE,
    QUEUE_DEPTH,
    SCHEDULE_DEPTH,
    SLOTS_IN_USE,
    UNKNOWN_FUNCTION_TASKS,
    has_receiver,
)
from docket.ledger import Ledger
from docket.ledger.queries import CensusRow
from docket.worker.service import Service

from .duties import SAMPLING, Duties

EVERY_SECONDS = 5.0
_GAUGES = (
    QUEUE_DEPTH,
    SCHEDULE_DEPTH,
    FLEET_RUNNING,
    OLDEST_WAITING_AGE,
    DEAD_LETTERS,
    DEAD_LETTERS_DROPPED,
    SLOTS_IN_USE,
    UNKNOWN_FUNCTION_TASKS,
    HELD_TASKS,
)


class Sampler(Service):
    """Samples while metrics are exported. A worker that is no longer elected removes its values."""

    name = "sampling"

    def __init__(
        self,
        ledger: Ledger,
        docket_labels: dict[str, str],
        duties: Duties,
        labels: dict[str, str],
        most_pause: float,
    ) -> None:
        super().__init__(labels, most_pause)
        self._ledger = ledger
        self._docket_labels = docket_labels
        self._duties = duties

    async def step(self) -> None:
        if has_receiver():
            CACHE_SIZE.set(plan_count(), {**self._labels, "docket.cache": "plans"})
            if await self._duties.take(SAMPLING, EVERY_SECONDS * 3):
                self._show(await self._ledger.queries.census(with_slots=True))
            else:
                self.clear()
        self.clear_problem()
        await asyncio.sleep(EVERY_SECONDS)

    def _show(self, counts: CensusRow) -> None:
        waited = counts.server_ms - counts.oldest_ready_ms if counts.oldest_ready_ms is not None else 0.0
        values = (
            counts.ready + counts.parked,
            counts.scheduled,
            counts.running,
            max(waited, 0.0) / 1000,
            counts.dead,
            counts.dropped,
            counts.slots,
            counts.unknown,
            counts.held,
        )
        for gauge, value in zip(_GAUGES, values, strict=True):
            gauge.set(value, self._docket_labels)

    def clear(self) -> None:
        for gauge in _GAUGES:
            gauge.clear(self._docket_labels)


FOLD_SECONDS = 60.0


class StatisticsFold(Service):
    """Adds the counts of past minutes to their hours (docs/design/statistics.md), and trims the
    history of finished runs (docs/design/history.md).

    Folds while this worker leads, one minute in each call. A minute waits if there is no leader,
    so nothing is lost."""

    name = "folding statistics"

    def __init__(self, ledger: Ledger, duties: Duties, labels: dict[str, str], most_pause: float) -> None:
        super().__init__(labels, most_pause)
        self._ledger = ledger
        self._duties = duties

    async def step(self) -> None:
        # At once: a worker that runs until all tasks are finished may live for seconds only.
        while self._duties.leads and await self._ledger.statistics.fold_minute():
            pass
        if self._duties.leads:
            await self._ledger.history.trim()
        self.clear_problem()
        await asyncio.sleep(FOLD_SECONDS)
