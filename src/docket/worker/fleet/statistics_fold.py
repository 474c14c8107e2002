"""Adds the counts of past minutes to their hours (docs/design/statistics.md), and trims the history
of finished runs (docs/design/history.md)."""

from __future__ import annotations

import asyncio

from docket.ledger import Ledger
from docket.worker.service import Service

from .duties import Duties

EVERY_SECONDS = 60.0


class StatisticsFold(Service):
    """Folds while this worker leads, one minute in each call. A minute waits if there is no leader,
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
        await asyncio.sleep(EVERY_SECONDS)
