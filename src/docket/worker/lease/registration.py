"""A worker's entry in the fleet: its id and its lease, and new ones after a lost lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from docket._aio import cancel_and_wait
from docket.dependencies import kept_ages, max_losses_of
from docket.dependencies.declarations import declarations_of
from docket.ledger import Ledger
from docket.ledger.fleet import new_worker_id
from docket.worker.fleet.duties import Duties

from .lease import Lease, ServerClock, steady_seconds
from .lease_events import LeaseEvents
from .renewer import Renewer

logger: logging.Logger = logging.getLogger("docket.worker")

# For leaving the fleet, if the worker has to end soon.
LEAST_SECONDS, LEAVE_SECONDS = 0.2, 1.0


# What functions declare, by name: the losses that bury their tasks, how long their dead letters are
# kept (ms), and the whole declaration for observers.
Declared = tuple[Mapping[str, int], Mapping[str, int], Mapping[str, str]]


def declared_by(tasks: Mapping[str, Any]) -> Declared:
    return max_losses_of(tasks), kept_ages(tasks), declarations_of(tasks)


class Registration:
    """Registers the worker and keeps its lease. If the
    lease is lost, registers the worker under a new id."""

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        lease_ms: int,
        interval: float,
        labels: dict[str, str],
        events: LeaseEvents,
        server_clock: ServerClock,
        duties: Duties,
    ) -> None:
        self._ledger = ledger
        self._name = name
        self._lease_ms = lease_ms
        self._interval = interval
        self._labels = labels
        self._events = events
        self._server_clock = server_clock
        self._duties = duties
        self._thread_name = f"{labels['docket.name']} - renewing"
        self._change: asyncio.Task[None] | None = None
        self._closed = False
        self.task_names: Sequence[str] = ()
        self._declared: Declared = ({}, {}, {})
        # Proves the messages of scripts (docs/design/proofs.md).
        self.secret: bytes | None = None
        self.id: str = self._new_id()
        self.lease: Lease = self._new_lease()
        self.renewer: Renewer = self._new_renewer()

    @property
    def lapsed(self) -> bool:
        return self.lease.lapsed

    @property
    def kept_seconds(self) -> float:
        return self.lease.kept_seconds

    def give_up(self) -> None:
        """Gives up a lease that the worker renews but cannot use: other workers get its tasks, and
        this worker registers under a new id."""
        self._events.lost()

    def renew_now(self) -> None:
        self.renewer.renew_now()

    def age(self, server_ms: float) -> float:
        """Seconds since `server_ms`, a time by the server's clock."""
        return (self._server_clock.now_ms() - server_ms) / 1000

    async def open(self, tasks: Mapping[str, Any]) -> None:
        """Registers the worker with the functions that it knows, and with what they declare."""
        self.task_names, self._declared = list(tasks), declared_by(tasks)
        try:
            # A worker can start while its server is unreachable, and
            # a registration can be repeated after a lost answer.
            await self.until_answered(self._register)
        except asyncio.CancelledError:
            # The server may have registered the worker even so.
            await self.leave(LEAVE_SECONDS)
            raise

    def register_again(self, tasks: Mapping[str, Any]) -> None:
        """Registers again, because the worker's functions have changed."""
        if self._change is None:
            self.task_names, self._declared = list(tasks), declared_by(tasks)
            self._start_change(self.until_answered(self._register))

    def start(self) -> None:
        self.renewer.start()

    def abandon(self) -> None:
        """The event loop is gone: the renewal thread takes the worker out of the fleet."""
        self.renewer.abandon()

    async def close(self, seconds: float) -> bool:
        """Stops the renewal and leaves the fleet. False if the server did not answer in time."""
        deadline = time.monotonic() + seconds
        self._closed = True
        change, self._change = self._change, None
        try:
            if change is not None:
                await cancel_and_wait([change], "docket: the worker stops")
            await self.renewer.stop(seconds / 2)
        finally:
            left = await self.leave(max(deadline - time.monotonic(), min(seconds / 2, LEAST_SECONDS)))
        return left

    async def leave(self, patience: float) -> bool:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(patience):
                await self._ledger.fleet.leave(self.id)
            return True
        return False

    def _new_id(self) -> str:
        self._duties.worker = new_worker_id(self._name)
        return self._duties.worker

    def _new_lease(self) -> Lease:
        return Lease(self.id, self._lease_ms, self._interval)

    def _new_renewer(self) -> Renewer:
        return Renewer(
            self._ledger, self.lease, self._events, self._thread_name, self._labels, self._server_clock, self._duties
        )

    async def _register(self) -> None:
        sent_at = steady_seconds()
        registration = await self._ledger.fleet.register(self.id, self._lease_ms, self.task_names, *self._declared)
        self._server_clock.note(registration.server_ms, steady_seconds() - sent_at)
        self._duties.assign(registration.duty)
        self.secret = registration.secret
        if registration.waiting_functions:
            self._events.functions_wait(registration.waiting_functions)

    def start_over(self) -> bool:
        """Registers the worker under a new id, with a new lease. False if that, or another change,
        is already under way."""
        return self._start_change(self._start_over())

    def restore(self) -> None:
        """Registers the worker again: the server has lost its data."""
        self._start_change(self._restore())

    async def _start_over(self) -> None:
        await self.renewer.stop()
        self.id = self._new_id()
        await self.until_answered(self._register)
        self.lease = self._new_lease()
        self.renewer = self._new_renewer()
        self.renewer.start()
        await self.until_answered(lambda: self._events.moved(self.id))

    async def _restore(self) -> None:
        await self.until_answered(self._register)
        self._events.data_lost()

    async def until_answered(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeats a step until the server answers it. The step must be safe to repeat."""
        await self._ledger.server.outages.until_answered(step, "registering")

    def _start_change(self, work: Coroutine[Any, Any, None]) -> bool:
        """Changes the registration in the background. False if a change is already under way: the
        renewer may report the same problem again meanwhile."""
        if self._change is not None or self._closed:
            work.close()
            return False
        self._change = asyncio.create_task(work, name=self._thread_name)
        self._change.add_done_callback(self._change_done)
        return True

    def _change_done(self, task: asyncio.Task[None]) -> None:
        if self._change is task:
            self._change = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("registering: %s", task.exception())
            self.renewer.renew_now()
