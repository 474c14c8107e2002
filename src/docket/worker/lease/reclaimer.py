"""Recovers tasks for the fleet, in the renewal thread: declares workers dead whose lease has ended
and puts their tasks back, and finds tasks that no ordinary path reaches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from docket.instrumentation import TASKS_CANCELLED, TASKS_COMPLETED, TASKS_FAILED
from docket.ledger import Ledger, Reclaimed, Renewal
from docket.model.amounts import show_size
from docket.worker.fleet.duties import Duties

from .lease import Lease, steady_seconds

logger: logging.Logger = logging.getLogger("docket.worker")

# The leader checks all leases every this many seconds,
# in case no renewal has reported one that has ended.
CHECK_LEASES_EVERY = 60.0
CONSUMERS_PER_REQUEST = 100


class Reclaimer:
    """Reclaims when a renewal reports that it is due.
    The leader also checks all leases at intervals.

    The reclaimer runs in the renewal thread. A step may take long, so it calls `renew` to keep the
    worker's own lease; `renew` returns False if that lease is gone. `call_in_loop` calls a function
    in the event loop. Once `stopping` is set, a step ends after its current request.
    """

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        client: Callable[[], Any],
        duties: Duties,
        labels: dict[str, str],
        renew: Callable[[], bool],
        call_in_loop: Callable[..., None],
        stopping: threading.Event,
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._client = client
        self._duties = duties
        self._labels = labels
        self._renew = renew
        self._call_in_loop = call_in_loop
        self._next_lease_check = steady_seconds()
        self._stopping = stopping

    def step(self, renewal: Renewal) -> None:
        """Reclaims if the renewal reports that it is due, and checks all leases if it is time."""
        consumers: list[bytes] | None = None
        if self._duties.leads and steady_seconds() >= self._next_lease_check:
            self._ledger.fleet.correct_leases(self._client())
            self._next_lease_check = steady_seconds() + CHECK_LEASES_EVERY
            consumers = self._ledger.fleet.consumers_without_lease(self._client())
        # Usually there is nothing to reclaim: the largest script is not even loaded then.
        if consumers or renewal.reclaiming_is_due:
            self._reclaim(consumers)

    def _reclaim(self, consumers: list[bytes] | None) -> None:
        """Repeats until no worker is left to declare dead and no task is left to put back.
        `consumers` are the stream consumers that have no lease, or None if nobody has looked for
        them."""
        total = Reclaimed()
        try:
            self._reclaim_all(total, consumers)
        finally:
            self._report(total)

    def _reclaim_all(self, total: Reclaimed, found: list[bytes] | None) -> None:
        lease = self._lease
        consumers, has_looked = found or [], found is not None
        while not self._stopping.is_set():
            step = self._ledger.fleet.reclaim(
                self._client(),
                lease.worker,
                lease.length_ms,
                lease.late_ms,
                willing=self._duties.willing,
                consumers=consumers[:CONSUMERS_PER_REQUEST],
            )
            total.add(step)
            if step.duty is not self._duties.duty and self._duties.willing:
                self._call_in_loop(self._duties.assign, step.duty)
            consumers = consumers[CONSUMERS_PER_REQUEST:]
            if step.look_for_consumers and not has_looked:
                has_looked, consumers = True, self._ledger.fleet.consumers_without_lease(self._client())
            if not step.left and not consumers:
                return
            if lease.age >= lease.interval and not self._renew():
                return

    def _report(self, total: Reclaimed) -> None:
        if total.declared or total.put_back or total.buried or total.cancelled:
            logger.warning(
                "reclaiming: %d worker(s) lost; %d task(s) put back, %d buried, %d cancelled",
                total.declared, total.put_back, total.buried, total.cancelled,
            )  # fmt: skip
        if total.buried:
            TASKS_COMPLETED.add(total.buried, self._labels)
            TASKS_FAILED.add(total.buried, self._labels)
        if total.cancelled:
            TASKS_CANCELLED.add(total.cancelled, self._labels)


PAGE = 200
SWEEP_SECONDS, SWEEP_SECONDS_WHEN_EMPTY = 10.0, 30.0
# While many tasks have to be put back, or many dead letters deleted.
MORE_SECONDS = 1.0


class Sweeper:
    """Finds unfinished tasks that no ordinary path reaches (docs/design/state-machine.md).

    Checks one page of tasks in each step, while this worker leads, and trims the dead letters.
    Runs in the renewal thread."""

    def __init__(self, ledger: Ledger, client: Callable[[], Any], duties: Duties) -> None:
        self._ledger = ledger
        self._client = client
        self._duties = duties
        self._every = SWEEP_SECONDS
        self.due_at: float = steady_seconds() + SWEEP_SECONDS

    def step(self) -> None:
        if steady_seconds() < self.due_at:
            return
        if not self._duties.leads:
            self.due_at = steady_seconds() + SWEEP_SECONDS
            return
        checked, repaired = self._ledger.fleet.sweep(self._client(), PAGE, int(self._every * 900))
        # If a whole stream or the schedule was lost, the next page needs a repair, too.
        self._every = SWEEP_SECONDS if not repaired else MORE_SECONDS
        self.due_at = steady_seconds() + (self._every if checked else SWEEP_SECONDS_WHEN_EMPTY)
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
