"""How the worker reacts to events of its lease."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from docket.ledger import Renewal
from docket.worker.running.runs import CancelReason, Run

from .activity import Activity
from .registration import declared_by
from .self_report import SelfReport

if TYPE_CHECKING:
    from docket.docket import Docket
    from docket.worker.parts import Parts

logger: logging.Logger = logging.getLogger("docket.worker")


class LeaseEvents:
    """Passes events of the lease on to the parts of the worker. All methods except `activity` and
    `take_prefetched` run in the event loop."""

    def __init__(self, docket: Docket, worker: str, parts: Parts) -> None:
        self._docket = docket
        self._worker = worker
        self._parts = parts
        # Called in the thread that renews the lease.
        self.report: Callable[[float], bytes] = SelfReport(parts).make

    def activity(self) -> Activity:
        """Safe to call from any thread."""
        parts, fetcher = self._parts, self._parts.fetcher
        return Activity(len(parts.runs), fetcher.has_offer, parts.session.is_stopping, fetcher.reading_client)

    def take_prefetched(self) -> list[Run]:
        """Safe to call from any thread."""
        return self._parts.fetcher.take_prefetched()

    def requeue(self, run: Run) -> None:
        self._parts.runner.requeue(run)

    def renewed(self, renewal: Renewal) -> None:
        parts, tasks = self._parts, self._docket.tasks
        parts.cancel_listener.cancel_runs(renewal.cancel_requests)
        parts.run_closer.requeue_given_up()
        if len(parts.registration.task_names) != len(tasks):
            parts.registration.register_again(list(tasks), declared_by(tasks))

    def lost(self) -> None:
        """Other workers have this worker's tasks: cancels every run and writes nothing."""
        runs = self._parts.runs
        logger.warning("worker %s lost its lease: %d running task(s) are given up", self._worker, len(runs))
        # The new lease is there before all parts know the new id.
        self._parts.fetcher.lose()
        runs.cancel_all(CancelReason.LEASE_LOST)
        self._parts.run_closer.forget_given_up()

    def cut_off(self) -> None:
        """The server is unreachable, and other workers may start this worker's tasks soon."""
        if len(self._parts.runs):
            logger.warning(
                "worker %s cannot reach the server and its lease has ended: running tasks are given up", self._worker
            )
            self._parts.runs.cancel_all(CancelReason.CUT_OFF)

    def data_lost(self) -> None:
        """The server has lost its data, automatic tasks included."""
        self._parts.seeder.seed_now()

    def staging_is_due(self) -> None:
        """A task is overdue by the wall clock. A test that
        holds the clock stages when it moves the clock."""
        if not self._docket.server.clock.is_held:
            self._parts.stager.wake()

    def functions_wait(self, names: Sequence[str]) -> None:
        """Tasks of these functions wait for a worker that knows them."""
        self._parts.fetcher.bring_forward(name for name in names if name in self._docket.tasks)

    def function_waits(self, name: str) -> None:
        self.functions_wait([name])

    async def moved(self, id: str) -> None:
        """The worker continues under a new id."""
        await self._parts.cancel_listener.open(id)
        await self._parts.fetcher.move(id)
