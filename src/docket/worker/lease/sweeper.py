"""Sweeps for the fleet: finds unfinished tasks that no ordinary path reaches
(docs/design/state-machine.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from docket.ledger import Ledger
from docket.model.sizes import show_size
from docket.worker.fleet.duties import Duties

from .server_clock import steady_seconds

logger: logging.Logger = logging.getLogger("docket.worker")

PAGE = 200
EVERY_SECONDS, EVERY_SECONDS_WHEN_EMPTY = 10.0, 30.0
# While many tasks have to be put back, or many dead letters deleted.
MORE_SECONDS = 1.0


class Sweeper:
    """Checks one page of tasks in each step, while this worker leads, and trims the dead letters.
    Runs in the renewal thread."""

    def __init__(self, ledger: Ledger, client: Callable[[], Any], duties: Duties) -> None:
        self._ledger = ledger
        self._client = client
        self._duties = duties
        self._every = EVERY_SECONDS
        self.due_at: float = steady_seconds() + EVERY_SECONDS

    def step(self) -> None:
        if steady_seconds() < self.due_at:
            return
        if not self._duties.leads:
            self.due_at = steady_seconds() + EVERY_SECONDS
            return
        checked, repaired = self._ledger.fleet.sweep(self._client(), PAGE, int(self._every * 900))
        # If a whole stream or the schedule was lost, the next page needs a repair, too.
        self._every = EVERY_SECONDS if not repaired else MORE_SECONDS
        self.due_at = steady_seconds() + (self._every if checked else EVERY_SECONDS_WHEN_EMPTY)
        self._trim_letters()
        if repaired:
            logger.warning(
                "sweeping: %d task(s) were in neither the schedule nor a stream and have been put back", repaired
            )

    def _trim_letters(self) -> None:
        """Deletes dead letters whose time is over. Dropped letters are logged once, by whichever
        worker finds them."""
        trimmed = self._ledger.letters.trim(self._client())
        if trimmed.has_more:
            self.due_at = steady_seconds() + MORE_SECONDS
        if trimmed.dropped:
            keep = self._ledger.keep
            logger.warning(
                "%s dead letter(s) were dropped, because more failed than are kept (%s letters, %s); "
                "Docket(keep_failures=Keep(letters=…, size=…)) keeps more",
                f"{trimmed.dropped:,}", f"{keep.letters:,}", show_size(keep.size),
            )  # fmt: skip
