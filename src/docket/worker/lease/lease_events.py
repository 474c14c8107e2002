"""Connects the lease with the other parts of the worker: what a renewal reports about the worker,
and how the worker reacts to events of its lease."""

from __future__ import annotations

import logging
import os
import platform
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from docket._version import __version__
from docket.child.memory import memory_in_use
from docket.docket import Docket
from docket.ledger import Renewal
from docket.ledger.fleet import WorkerReport
from docket.worker.running.runs import CancelReason, Run

if TYPE_CHECKING:
    from docket.worker.parts import Parts

logger: logging.Logger = logging.getLogger("docket.worker")


class Activity(NamedTuple):
    """How many runs the worker has, whether it offers a slot, whether it is stopping, and the id of
    the connection on which it waits for work."""

    runs: int
    has_offer: bool
    stopping: bool
    reading: int | None = None


class LeaseEvents:
    """The registration, the renewer and the watchdog ask and inform the worker through this object.

    The renewal thread calls `activity`, `report` and `take_prefetched`, which only read numbers or
    take single steps, so they need no lock. All other methods run in the event loop.
    """

    def __init__(self, docket: Docket, worker: str, parts: Parts) -> None:
        self._docket = docket
        self._worker = worker
        self._parts = parts
        self._host = socket.gethostname()
        self._python = platform.python_version()
        self._began = datetime.now(UTC)

    # In the renewal thread

    def activity(self) -> Activity:
        parts, fetcher = self._parts, self._parts.fetcher
        return Activity(len(parts.runs), fetcher.has_offer, parts.session.is_stopping, fetcher.reading_client)

    def report(self, lag: float) -> bytes:
        """The report of the worker about itself (docs/design/web.md). `lag` is how long the event
        loop took to answer, in seconds."""
        parts = self._parts
        threads, children = parts.threads, parts.children
        return WorkerReport(
            host=self._host,
            version=__version__,
            python=self._python,
            pid=os.getpid(),
            at=datetime.now(UTC),
            started_at=self._began,
            slots=parts.slots.count,
            runs=len(parts.runs),
            threads=threads.count,
            threads_busy=threads.busy,
            children=children.count,
            children_busy=children.busy,
            abandoned=parts.runs.abandoned,
            memory=memory_in_use(),
            lag=lag,
        ).pack()

    def take_prefetched(self) -> list[Run]:
        """Takes all prefetched runs: they do not start here any more."""
        return self._parts.fetcher.prefetcher.take_all()

    # In the event loop

    def requeue(self, run: Run) -> None:
        self._parts.run_closer.requeue(run)

    def renewed(self, renewal: Renewal) -> None:
        parts, tasks = self._parts, self._docket.tasks
        parts.worker_channel.cancel_runs(renewal.cancel_requests)
        parts.run_closer.requeue_given_up()
        if len(parts.registration.task_names) != len(tasks):
            parts.registration.register_again(tasks)

    def lost(self) -> None:
        """Other workers have this worker's tasks: registers the worker under a new id, cancels
        every run and writes nothing."""
        parts, runs = self._parts, self._parts.runs
        if not parts.registration.start_over():
            return
        logger.warning("worker %s lost its lease: %d running task(s) are given up", self._worker, len(runs))
        # The new lease is there before all parts know the new id.
        parts.fetcher.lose()
        runs.cancel_all(CancelReason.LEASE_LOST)
        parts.run_closer.forget_given_up()

    async def moved(self, id: str) -> None:
        """The worker continues under a new id."""
        await self._parts.worker_channel.open(id)
        await self._parts.fetcher.move(id)

    def cut_off(self) -> None:
        """The server is unreachable, and other workers may start this worker's tasks soon."""
        if len(self._parts.runs):
            logger.warning(
                "worker %s cannot reach the server and its lease has ended: running tasks are given up", self._worker
            )
            self._parts.runs.cancel_all(CancelReason.CUT_OFF)

    def unregistered(self) -> None:
        """The server does not know this worker, because it has lost its data."""
        self._parts.registration.restore()

    def data_lost(self) -> None:
        """The server has lost its data, automatic tasks included. It knows this worker again."""
        self._parts.seeder.seed_now()

    def staging_is_due(self) -> None:
        """A task is overdue by the wall clock. A test that
        holds the clock stages when it moves the clock."""
        if not self._docket.server.clock.is_frozen:
            self._parts.stager.wake()

    def functions_wait(self, names: Sequence[str]) -> None:
        """Tasks of these functions wait for a worker that knows them."""
        self._parts.fetcher.bring_forward(name for name in names if name in self._docket.tasks)
