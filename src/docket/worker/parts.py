"""The parts of a worker. This module builds, starts and stops them, in the order of the code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from docket._aio import cancel_and_wait
from docket.dependencies import plan_for
from docket.errors import NotOpen
from docket.model.times import duration_ms
from docket.storage.scripts import load_all
from docket.storage.server import warn_of_data_loss

from .children.children import Children
from .claiming.deferred_tasks import DeferredTasks, UnknownFunctions
from .claiming.fetcher import Fetcher
from .fleet.duties import Duties
from .fleet.releaser import Releaser
from .fleet.sampler import Sampler, StatisticsFold
from .fleet.seeder import Seeder
from .fleet.settings_check import SettingsCheck
from .fleet.stager import Stager
from .lease.lease import lease_length_ms
from .lease.lease_events import LeaseEvents
from .lease.registration import Registration
from .lease.worker_channel import WorkerChannel
from .running.decisions import Decisions, RunCounts
from .running.final_settlements import FinalSettlements
from .running.runner import Runner
from .running.runs import DeadlockWarning, Runs, Slots
from .running.settlement_writer import RunCloser, SettlementWriter, WriteDeadlines
from .running.threads import AbandonedRuns, Threads
from .service import Service
from .session import Drain, WorkerSession, clear_pending_cancels

if TYPE_CHECKING:
    from .worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")

# Returns when the worker has nothing left to do.
Until = Callable[["Parts"], Coroutine[Any, Any, None]]


async def open_parts(worker: Worker, session: WorkerSession, stack: AsyncExitStack, *, has_to_end: bool) -> Parts:
    """Builds and starts the parts. `stack` closes them in
    reverse order, even if a later part fails to start."""
    # Life cycles open before the parts are built, so that runs see the context variables that a
    # life cycle sets. They close last.
    for lifecycle in _lifecycles(worker):
        await stack.enter_async_context(lifecycle)
    load_all()
    await warn_of_data_loss(worker.docket.server, worker.docket.keys.root)
    parts = Parts(worker, session, has_to_end=has_to_end)
    await parts.start(stack)
    return parts


def _lifecycles(worker: Worker) -> list[AbstractAsyncContextManager[Any]]:
    """The life cycles of the dependency classes that the tasks and the worker use, each class once:
    context managers that stay open while a worker runs. A class may have none."""
    declared = [d for function in worker.docket.tasks.values() for d in plan_for(function).all()]
    classes = {type(d): None for d in [*declared, *worker.dependencies.values()]}
    methods = [getattr(cls, "worker_lifecycle", None) for cls in classes]
    opened = [method(worker.docket, worker) for method in methods if method is not None]
    return [lifecycle for lifecycle in opened if lifecycle is not None]


class Parts:
    """The parts of one session of a worker (a call of `run_forever`
    or similar). Each session has its own parts."""

    def __init__(self, worker: Worker, session: WorkerSession, *, has_to_end: bool) -> None:
        """Each part receives parts that are built before it. Events of the lease flow the other
        way, through `self`, and offers of slots through `settlement_writer.offers`."""
        docket, ledger, subscriptions = worker.docket, worker.docket.ledger, worker.docket.subscriptions
        labels, pause = worker.labels(), max(worker.reconnection_delay.total_seconds(), 0.05)
        redelivery_ms, heartbeat_ms = duration_ms(worker.redelivery_timeout), duration_ms(docket.heartbeat_interval)
        self._worker, self._docket = worker, docket
        self.session: WorkerSession = session
        self.duties: Duties = Duties(ledger)
        self.runs: Runs = Runs()
        self.slots: Slots = Slots(worker.concurrency)
        self.threads: Threads = Threads(worker.threads, docket.name, labels, AbandonedRuns(self.runs, self.slots))
        self.children: Children = Children(worker, lambda: session.is_stopping)
        self.deadlock_warning: DeadlockWarning = DeadlockWarning(worker.name, self.slots)
        self.lease_ms: int = lease_length_ms(redelivery_ms, heartbeat_ms, docket.missed_heartbeats)
        events = LeaseEvents(docket, worker.name, self)
        self.registration: Registration = Registration(
            ledger, worker.name, self.lease_ms, heartbeat_ms / 1000, labels, events, worker.server_clock, self.duties
        )
        self.drain: Drain = Drain(self.runs, worker.grace_period.total_seconds(), self.registration)
        deadlines = WriteDeadlines(self.lease_ms / 1000, self.registration)
        self.settlement_writer: SettlementWriter = SettlementWriter(ledger, docket.name, deadlines)
        self.unknown_functions: UnknownFunctions = UnknownFunctions(worker, has_to_end=has_to_end)
        run_counts, final = RunCounts(worker.run_limits), FinalSettlements(worker, deadlines)
        self.deferred_tasks: DeferredTasks = DeferredTasks(self.slots)
        self.run_closer: RunCloser = RunCloser(self.runs, self.slots, self.settlement_writer, worker.reporter)
        self.runner: Runner = Runner(
            worker,
            self.registration,
            self.runs,
            self.slots,
            Decisions(worker, final, run_counts, self.deferred_tasks),
            run_counts,
            self.run_closer,
            self.unknown_functions,
        )
        self.fetcher: Fetcher = Fetcher(
            ledger, subscriptions, self.slots, self.runner, self.runs, self.registration, labels, pause
        )
        self.settlement_writer.offers = self.fetcher
        self.worker_channel: WorkerChannel = WorkerChannel(
            ledger, subscriptions, self.runs, events.functions_wait, self.registration, self.duties
        )
        self.stager: Stager = Stager(ledger, subscriptions, self.duties, worker.now_ms, labels, pause)
        self.sampler: Sampler = Sampler(ledger, docket.labels(), self.duties, labels, pause)
        self.settings_check: SettingsCheck = SettingsCheck(docket, worker.name, self.duties, labels, pause)
        self.seeder: Seeder = Seeder(docket, self.duties, worker.now, labels, pause)
        self._services: list[Service] = [
            self.fetcher,
            self.fetcher.unknown_deliveries,
            self.runner.loader,
            self.stager,
            self.sampler,
            self.settings_check,
            Releaser(ledger, self.runner.pauses, self.duties, labels, pause),
            StatisticsFold(ledger, self.duties, labels, pause),
        ]
        if worker.schedule_automatic_tasks:
            self._services.append(self.seeder)

    async def start(self, stack: AsyncExitStack) -> None:
        """Starts the parts in this order. `stack` closes them
        in reverse order after the services have stopped."""
        docket, registration = self._docket, self.registration
        self.run_closer.on_superseded = self.fetcher.unknown_deliveries.check_soon
        await registration.open(docket.tasks)
        stack.callback(self.threads.close)
        stack.push_async_callback(self.children.close)
        # Renewal stops last: the parts below still write under the lease while they close.
        stack.push_async_callback(self._leave)
        # The writer closes after the fetcher, so that it writes the tasks that the fetcher
        # requeues while it closes.
        stack.push_async_callback(self.settlement_writer.close)
        await registration.until_answered(lambda: self.worker_channel.open(registration.id))
        stack.push_async_callback(self.worker_channel.close)
        # Pushed before the fetcher opens: the fetcher may fail half-way and must close then, too.
        stack.push_async_callback(self.fetcher.close)
        await registration.until_answered(lambda: self.fetcher.open(registration.id, self._worker.name_json))
        await self.stager.open()
        stack.push_async_callback(self.stager.close)
        stack.callback(self.sampler.clear)
        await self.settings_check.begin()
        await docket.wait_for_strikes_loaded()
        stack.callback(self.runner.pauses.close)
        await registration.until_answered(self.runner.pauses.open)
        if self._worker.schedule_automatic_tasks:
            await self.seeder.begin()
        registration.start()

    async def serve(self, until: Until) -> None:
        """Runs the services until `until` returns, the worker is stopped or cancelled, or a service
        raises an error that it does not retry."""
        self.session.begin(self.drain)
        tasks = self._start_services(until)
        cancelled = False
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # A cancel stops the worker: it drains and returns. If
            # all tasks are cancelled, the event loop is ending.
            cancelled = True
            if all(task.cancelling() for task in tasks):
                self.session.requeue(loop_ends=True)
        finally:
            failure = _first_failure(tasks)
            cancelled = await self._stop(tasks, failure) or cancelled
        if cancelled:
            clear_pending_cancels()
        if failure is not None and not isinstance(failure, NotOpen):
            raise failure

    def _start_services(self, until: Until) -> list[asyncio.Task[None]]:
        name = self._docket.name
        for service in self._services:
            service.out_of_traces = not self._worker.enable_internal_instrumentation
            service.outages = self._docket.server.outages
        return [
            *(asyncio.create_task(service.run(), name=f"{name} - {service.name}") for service in self._services),
            asyncio.create_task(until(self), name=f"{name} - until"),
            asyncio.create_task(self.session.wait_for_stop(), name=f"{name} - stop"),
        ]

    async def _stop(self, tasks: list[asyncio.Task[None]], failure: BaseException | None) -> bool:
        """Stops in the order of docs/design/lease-protocol.md, "Shutdown". Returns True if a cancel
        arrived meanwhile: then the runs are requeued at once."""
        session, cancelled = self.session, False
        # 1. The grace period begins. A renewal reports it to the server at once: if the process is killed while it drains, its
        #    tasks do not count as the cause.
        session.begin_stop()
        self.fetcher.refuse_from_now()
        if len(self.runs):
            self.registration.renew_now()
        # 2. The services end. The fetcher waits for a claim under way and requeues the claimed tasks; the stager resigns.
        try:
            await cancel_and_wait(tasks, "docket: the worker stops", session.services_are_late)
        except asyncio.CancelledError:
            cancelled = True
            session.requeue()
        if isinstance(failure, NotOpen):
            logger.warning("the docket was closed while worker %s was running; the worker stops", self._worker.name)
            session.requeue()
        # 3. The fetcher withdraws the offer of a slot. It requeues a delivery that is already on its way.
        try:
            with contextlib.suppress(NotOpen, TimeoutError):
                async with asyncio.timeout(session.seconds_to_withdraw()):
                    await self.fetcher.withdraw()
        except asyncio.CancelledError:
            cancelled = True
            session.requeue()
        # 4. Runs get the rest of the grace period; then they are cancelled and requeued. All endings are written.
        return await self.drain.run(session.requeue) or cancelled
        # 5. The stack closes the parts in reverse order of `start`. Last of all, the worker gives up its lease.

    async def _leave(self) -> None:
        self._docket.attached.is_silent = not await self.registration.close(self.session.seconds_to_leave())


def _first_failure(tasks: Iterable[asyncio.Task[Any]]) -> BaseException | None:
    for task in tasks:
        if task.done() and not task.cancelled() and task.exception() is not None:
            return task.exception()
    return None
