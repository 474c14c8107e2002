"""How the worker reacts to events of its lease."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from docket.ledger import Renewal

from .activity import Activity
from .registration import declared_by
from .runs import CancelReason, Run
from .self_report import SelfReport

if TYPE_CHECKING:
    from docket.docket import Docket

    from .staff import Staff

logger: logging.Logger = logging.getLogger("docket.worker")


class LeaseEvents:
    """Passes events of the lease on to the parts of the worker. All methods except `activity` and
    `take_prefetched` run in the event loop."""

    def __init__(self, docket: Docket, worker: str, staff: Staff) -> None:
        self._docket = docket
        self._worker = worker
        self._staff = staff
        # Called in the thread that renews the lease.
        self.report: Callable[[float], bytes] = SelfReport(staff).make

    def activity(self) -> Activity:
        """Safe to call from any thread."""
        staff, fetcher = self._staff, self._staff.fetcher
        return Activity(len(staff.runs), fetcher.has_offer, staff.session.is_stopping, fetcher.reading_client)

    def take_prefetched(self) -> list[Run]:
        """Safe to call from any thread."""
        return self._staff.fetcher.take_prefetched()

    def requeue(self, run: Run) -> None:
        self._staff.runner.requeue(run)

    def renewed(self, renewal: Renewal) -> None:
        staff, tasks = self._staff, self._docket.tasks
        staff.cancel_listener.cancel_runs(renewal.cancel_requests)
        staff.run_settler.requeue_given_up()
        if len(staff.registration.task_names) != len(tasks):
            staff.registration.register_again(list(tasks), declared_by(tasks))

    def lost(self) -> None:
        """Other workers have this worker's tasks: cancels every run and writes nothing."""
        runs = self._staff.runs
        logger.warning("worker %s lost its lease: %d running task(s) are given up", self._worker, len(runs))
        # The new lease is there before all parts know the new id.
        self._staff.fetcher.lose()
        runs.cancel_all(CancelReason.LEASE_LOST)
        self._staff.run_settler.forget_given_up()

    def cut_off(self) -> None:
        """The server is unreachable, and other workers may start this worker's tasks soon."""
        if len(self._staff.runs):
            logger.warning(
                "worker %s cannot reach the server and its lease has ended: running tasks are given up", self._worker
            )
            self._staff.runs.cancel_all(CancelReason.CUT_OFF)

    def data_lost(self) -> None:
        """The server has lost its data, automatic tasks included."""
        self._staff.seeder.seed_now()

    def staging_is_due(self) -> None:
        """A task is overdue by the wall clock. A test that
        holds the clock stages when it moves the clock."""
        if not self._docket.server.clock.is_held:
            self._staff.stager.wake()

    def functions_wait(self, names: Sequence[str]) -> None:
        """Tasks of these functions wait for a worker that knows them."""
        self._staff.fetcher.bring_forward(name for name in names if name in self._docket.tasks)

    def function_waits(self, name: str) -> None:
        self.functions_wait([name])

    async def moved(self, id: str) -> None:
        """The worker continues under a new id."""
        await self._staff.cancel_listener.open(id)
        await self._staff.fetcher.move(id)
