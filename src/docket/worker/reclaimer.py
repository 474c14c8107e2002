"""Reclaims for the fleet: declares workers dead
whose lease has ended, and puts their tasks back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from docket.instrumentation import TASKS_CANCELLED, TASKS_COMPLETED, TASKS_FAILED
from docket.ledger import Ledger, Reclaimed, Renewal

from .duties import Duties
from .lease import Lease
from .server_clock import steady_seconds

logger: logging.Logger = logging.getLogger("docket.worker")

# The leader looks for workers that nothing has announced.
INSPECT_EVERY = 60.0
CONSUMERS_AT_ONCE = 100


class Reclaimer:
    """Reclaims when a renewal asks for it. The leader also
    inspects now and then. It runs in the renewal thread.

    `renew` keeps the worker's own lease meanwhile, and says whether there still is one. `tell`
    calls the event loop. Once `stopping` is set, a step ends after the request that is under way.
    """

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        client: Callable[[], Any],
        duties: Duties,
        labels: dict[str, str],
        renew: Callable[[], bool],
        tell: Callable[..., None],
        stopping: threading.Event,
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._client = client
        self._duties = duties
        self._labels = labels
        self._renew = renew
        self._tell = tell
        self._next_inspection = steady_seconds()
        self._stopping = stopping

    def step(self, renewal: Renewal) -> None:
        """Reclaims if the renewal says so, and inspects if it is time."""
        inspects = self._duties.leads and steady_seconds() >= self._next_inspection
        if inspects:
            self._ledger.inspect(self._client())
            self._next_inspection = steady_seconds() + INSPECT_EVERY
        if inspects or renewal.reclaiming_is_due:
            self._reclaim(look=inspects)

    def _reclaim(self, *, look: bool) -> None:
        """Goes on until nothing is left to declare or recover. With `get`, also finds consumers of
        workers that are gone."""
        total = Reclaimed()
        try:
            self._reclaim_all(total, look=look)
        finally:
            self._report(total)

    def _reclaim_all(self, total: Reclaimed, *, look: bool) -> None:
        lease = self._lease
        consumers = self._ledger.consumers_without_lease(self._client()) if look else []
        while not self._stopping.is_set():
            step = self._ledger.reclaim(
                self._client(),
                lease.worker,
                lease.length_ms,
                lease.late_ms,
                willing=self._duties.willing,
                consumers=consumers[:CONSUMERS_AT_ONCE],
            )
            total.add(step)
            if step.duty is not self._duties.duty and self._duties.willing:
                self._tell(self._duties.assign, step.duty)
            consumers = consumers[CONSUMERS_AT_ONCE:]
            if step.look_for_consumers and not look:
                look, consumers = True, self._ledger.consumers_without_lease(self._client())
            if not step.left and not consumers:
                return
            if lease.age >= lease.beat and not self._renew():
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
