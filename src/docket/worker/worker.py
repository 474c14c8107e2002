"""The worker: takes tasks from a docket and runs them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Self

from docket._aio import cancel_and_wait
from docket.dependencies import Dependency, current_docket, current_worker, max_losses_of, validate_dependencies
from docket.docket import Docket
from docket.errors import TRANSIENT, NotOpen
from docket.execution import Execution, TaskFunction
from docket.execution.context import TaskHome
from docket.ledger import Renewal
from docket.ledger.ledger import as_json
from docket.model.times import check_durations, duration_ms, from_ms
from docket.storage.eviction import warn_of_eviction

from .agreement import Agreement
from .block_context import BlockContext
from .cancels import forget_cancels, notice_cancel
from .draining import Draining
from .duties import Duties
from .fetching import Fetcher
from .health import health_problem, readiness_problem
from .lease import LeaseKeeper, Occupation, lease_length_ms
from .lifecycles import lifecycles
from .orders import Orders
from .own_dependencies import worker_dependencies
from .program import run_program
from .reporting import Reporter
from .running import Runner
from .runs import CancelReason, Runs
from .sampling import Sampler
from .seeding import Seeder
from .server_clock import ServerClock
from .service import Service
from .session import Session
from .settling import Settler
from .sharing import SharedValues
from .slots import Slots
from .staging import Stager
from .task_list import log_start
from .tenure import Tenure, TenureEvents
from .unknown_functions import UnknownFunctions
from .waiting_bodies import WaitingBodies
from .write_limits import WriteLimits

logger: logging.Logger = logging.getLogger("docket.worker")

# While nothing happens here, this is how often run_until_finished asks whether others are done too.
FINISHED_CHECK_SECONDS = 0.1
# Right after something happened it asks sooner.
SHORTEST_CHECK_SECONDS = 0.002


class Worker:
    """Runs the tasks of a docket. An async context manager.

    `concurrency` tasks run at a time. A worker that dies loses its tasks to the others after `redelivery_timeout` or the
    docket's heartbeat time-out, whichever is sooner; one that lives keeps them, however long they take. On shutdown running
    tasks have `grace_period` to finish; the rest is handed back. Nothing is polled, and no more is taken than there are
    slots for within a moment: `minimum_check_interval`, `scheduling_resolution` and `message_batch` are accepted and unused.
    """

    def __init__(
        self,
        docket: Docket,
        name: str | None = None,
        concurrency: int = 10,
        redelivery_timeout: timedelta = timedelta(minutes=5),
        reconnection_delay: timedelta = timedelta(seconds=5),
        minimum_check_interval: timedelta = timedelta(milliseconds=250),
        scheduling_resolution: timedelta = timedelta(milliseconds=250),
        schedule_automatic_tasks: bool = True,
        enable_internal_instrumentation: bool = False,
        fallback_task: TaskFunction | None = None,
        dependencies: Mapping[str, Any] | Sequence[Any] | None = None,
        message_batch: int = 1000,
        *,
        grace_period: timedelta = timedelta(minutes=5),
    ) -> None:
        if isinstance(docket, str):
            raise TypeError(
                f"Worker({docket!r}): a worker takes an open docket; to start from a URL use Worker.run(url=…)"
            )
        if concurrency < 1:
            raise ValueError(f"concurrency={concurrency}: it must be at least 1")
        check_durations(
            "Worker",
            redelivery_timeout=redelivery_timeout,
            reconnection_delay=reconnection_delay,
            grace_period=grace_period,
        )
        if redelivery_timeout <= timedelta(0):
            raise ValueError(f"redelivery_timeout={redelivery_timeout}: it must be positive")
        if message_batch < 1:
            raise ValueError(f"message_batch={message_batch}: it must be at least 1")
        self.docket = docket
        self.name: str = name or f"{socket.gethostname()}#{os.getpid()}"
        self.name_json: str = as_json(self.name)
        self.concurrency = concurrency
        self.redelivery_timeout = redelivery_timeout
        self.message_batch = message_batch
        self.reconnection_delay = reconnection_delay
        self.minimum_check_interval = minimum_check_interval
        self.scheduling_resolution = scheduling_resolution
        self.schedule_automatic_tasks = schedule_automatic_tasks
        self.enable_internal_instrumentation = enable_internal_instrumentation
        self.fallback_task = fallback_task
        self.grace_period = grace_period
        self.dependencies: dict[str, Dependency[Any]] = worker_dependencies(dependencies)
        self.run_limits: dict[str, int] = {}
        self.reporter: Reporter = Reporter(self.labels(), {})
        self.server_clock: ServerClock = ServerClock()
        self._stack: AsyncExitStack | None = None
        self._working = self._served = self._draining = self._has_to_end = False
        self._stop = asyncio.Event()
        self._session: Session | None = None

    def labels(self) -> dict[str, str]:
        return {**self.docket.labels(), "docket.worker": self.name}

    # Time as the server has it

    def now_ms(self) -> float:
        clock = self.docket.server.clock
        return clock.now_ms() if clock.is_held else self.server_clock.now_ms()

    def now(self) -> datetime:
        return from_ms(self.now_ms())

    @property
    def redelivery_ms(self) -> int:
        return duration_ms(self.redelivery_timeout)

    # Life

    async def __aenter__(self) -> Self:
        assert self._stack is None, "this worker is already open"
        if self.fallback_task is not None:
            validate_dependencies(self.fallback_task)
        async with AsyncExitStack() as stack:
            self._stop = asyncio.Event()
            self.shared: SharedValues = SharedValues()
            # Left last: values that are closed may look at the worker.
            stack.callback(BlockContext(self._variables()).leave)
            stack.push_async_callback(self.shared.aclose)
            self._stack = stack.pop_all()
        return self

    def _variables(self) -> list[tuple[ContextVar[Any], Any]]:
        return [(current_docket, self.docket), (current_worker, self), *self.shared.variables()]

    async def __aexit__(self, *exc_info: object) -> None:
        """Ends a run that goes on in another asyncio task first: within the grace period, at once after an exception."""
        stack, self._stack = self._stack, None
        if stack is None:
            return
        try:
            await self.end_run(at_once=any(exc_info))
        finally:
            await stack.aclose()

    def is_inside(self) -> bool:
        """Whether the caller runs in this worker, so that it cannot wait for the worker's end."""
        return self._session is not None and self._session.is_inside()

    async def end_run(self, *, at_once: bool) -> None:
        """Returns when the run that goes on in another asyncio task, if there is one, has ended."""
        if self._session is not None:
            await self._session.end(at_once=at_once)

    def validate_task_dependencies(self, tasks: Iterable[TaskFunction] | None = None) -> None:
        """Raises ValueError if the dependencies of a task contradict each other."""
        for function in tasks if tasks is not None else self.docket.tasks.values():
            validate_dependencies(function)

    # Health

    @property
    def is_working(self) -> bool:
        return self._working and self._served

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set() or self._draining

    def health_problem(self) -> str | None:
        """Why the worker is not well, or None if it claims, renews and its event loop turns."""
        return health_problem(self)

    def readiness_problem(self) -> str | None:
        return readiness_problem(self)

    # Working

    async def run_forever(self) -> None:
        """Works until it is cancelled or told to stop; then finishes what runs and returns."""
        await self._work(self._never)

    async def run_until_finished(self) -> None:
        """Works until nothing is waiting or running, future work included."""
        await self._work(self._finished, has_to_end=True)

    async def run_at_most(self, iterations_by_key: Mapping[str, int]) -> None:
        """As run_until_finished, with at most so many runs of the given keys: for tasks that perpetuate themselves."""
        self.run_limits = dict(iterations_by_key)
        try:
            await self._work(self._finished, has_to_end=True)
        finally:
            self.run_limits = {}

    def stop(self) -> None:
        """Asks the worker to finish what runs and return. Asked again, it hands back what still runs."""
        if self._session is not None:
            if self._stop.is_set() and self._served:
                self._session.hand_back()
            self._session.end_set_up()
        self._stop.set()

    async def _never(self) -> None:
        await asyncio.Event().wait()

    async def _finished(self) -> None:
        pause = SHORTEST_CHECK_SECONDS
        while True:
            if len(self.runs):
                pause = SHORTEST_CHECK_SECONDS
            await self.runs.wait_idle()
            if await self._nothing_left() and not len(self.runs):
                return
            await self.docket.server.clock.idle(pause)
            pause = min(pause * 2, FINISHED_CHECK_SECONDS)

    def body_waits(self, execution: Execution, docket: TaskHome, key: str) -> None:
        """The body of one of our runs waits for a task that has not begun."""
        if (docket.name, docket.ledger.server.url) == (self.docket.name, self.docket.url):
            self.waiting_bodies.note(execution, key)

    async def _nothing_left(self) -> bool:
        try:
            census = await self.docket.ledger.census()
            if census.unknown:
                await self.unknown_functions.fail_waiting()
            return census.unfinished == 0
        except TRANSIENT:
            # Who cannot be asked now is asked again; the services say what is wrong.
            return False

    async def _work(self, until: Callable[[], Coroutine[Any, Any, None]], *, has_to_end: bool = False) -> None:
        if self._stack is None:
            raise NotOpen("the worker is not open: use it inside `async with Worker(docket) as worker:`")
        assert not self._working, "this worker is already running"
        self.docket.attached.attach(self)
        self._has_to_end = has_to_end
        self._stop.clear()
        self._working, session = True, Session(self._stop, self._abandoned, self.docket.attached)
        self._session = session
        log_start(self.name, self.docket.tasks, self.labels())
        try:
            async with AsyncExitStack() as stack:
                await self._set_up(stack)
                notice_cancel()
                session.begin(self.draining)
                await self._serve(until, session)
        except asyncio.CancelledError:
            # During set-up: nothing runs yet, and what was opened is closed.
            forget_cancels()
        finally:
            self._run_ended()
            session.is_over()

    def _run_ended(self) -> None:
        self._working = self._served = self._draining = False
        self._session = None
        self.docket.attached.detach(self)

    def _abandoned(self) -> None:
        """The event loop was closed under the run, which will never go on."""
        if self._served:
            self.keeper.abandon()
        self._run_ended()

    async def _set_up(self, stack: AsyncExitStack) -> None:
        """Opens what the services need; whatever was opened is closed in reverse, to the end."""
        docket = self.docket
        labels, pause = self.labels(), max(self.reconnection_delay.total_seconds(), 0.05)
        self.runs: Runs = Runs()
        self.draining: Draining = Draining(self.runs, self.grace_period.total_seconds(), lambda: self.keeper.lapsed)
        self.slots: Slots = Slots(self.concurrency)
        self.waiting_bodies: WaitingBodies = WaitingBodies(self.name, self.slots)
        self.lease_ms: int = lease_length_ms(
            self.redelivery_ms, duration_ms(docket.heartbeat_interval), docket.missed_heartbeats
        )
        self.write_limits: WriteLimits = WriteLimits(
            self.lease_ms / 1000, lambda: self.tenure.kept_seconds, lambda: self.tenure.let_go()
        )
        self.settler: Settler = Settler(docket.ledger, docket.name, self.write_limits)
        self.unknown_functions: UnknownFunctions = UnknownFunctions(self, has_to_end=lambda: self._has_to_end)
        self.runner: Runner = Runner(self)
        for lifecycle in lifecycles(self):
            await stack.enter_async_context(lifecycle)
        await warn_of_eviction(docket.server, docket.keys.root)
        self.duties: Duties = Duties()
        self.tenure: Tenure = self._new_tenure()
        self.fetcher: Fetcher = Fetcher(
            docket.ledger, docket.subscriptions, self.slots, self.runner, self.runs, self.tenure, labels, pause
        )
        await self.tenure.open(list(docket.tasks), max_losses_of(docket.tasks))
        stack.push_async_callback(self._leave)
        stack.push_async_callback(self.settler.close)
        self.orders: Orders = Orders(
            docket.ledger, docket.subscriptions, self.runs, lambda name: self._functions_wait([name])
        )
        await self.tenure.patiently(lambda: self.orders.open(self.id))
        stack.push_async_callback(self.orders.close)
        stack.push_async_callback(self.fetcher.close)
        await self.tenure.patiently(lambda: self.fetcher.open(self.id, self.name_json))
        self.settler.offers = self.fetcher
        self.stager: Stager = Stager(
            docket.ledger, docket.subscriptions, self.duties, lambda: self.id, self.now_ms, labels, pause
        )
        await self.stager.open()
        stack.push_async_callback(self.stager.close)
        self.sampler: Sampler = Sampler(docket.ledger, docket.labels(), labels, pause)
        self.sampler.worker = self.id
        stack.callback(self.sampler.clear)
        self.agreement: Agreement = Agreement(docket, self.name, self.duties, labels, pause)
        await self.agreement.begin()
        self.seeder: Seeder = Seeder(docket, self.now, labels, pause)
        self.seeder.worker = self.id
        await docket.wait_for_strikes_loaded()
        if self.schedule_automatic_tasks:
            await self.seeder.begin()
        self.tenure.start()

    async def _serve(self, until: Callable[[], Coroutine[Any, Any, None]], session: Session) -> None:
        """Runs the services until the end has come, somebody cancels, or a service fails for good; then drains."""
        services: list[Service] = [
            self.fetcher,
            self.fetcher.unknown_deliveries,
            self.runner.loader,
            self.stager,
            self.sampler,
            self.agreement,
        ]
        if self.schedule_automatic_tasks:
            services.append(self.seeder)
        for service in services:
            service.out_of_traces = not self.enable_internal_instrumentation
            service.outages = self.docket.server.outages
        self._served = True
        name = self.docket.name
        staff = [asyncio.create_task(service.run(), name=f"{name} - {service.name}") for service in services]
        ends = [
            asyncio.create_task(until(), name=f"{name} - until"),
            asyncio.create_task(self._stop.wait(), name=f"{name} - stop"),
        ]
        cancelled = False
        try:
            await asyncio.wait([*staff, *ends], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # Cancelling a worker is the way to stop it: it drains and returns. An event loop that ends cancels all tasks.
            cancelled = True
            if all(task.cancelling() for task in [*staff, *ends]):
                session.hand_back(loop_ends=True)
        finally:
            failure = _first_failure([*staff, *ends])
            session.begin_end()
            self._tell_that_it_stops()
            try:
                await cancel_and_wait([*staff, *ends], "docket: the worker stops", session.services_are_late)
            except asyncio.CancelledError:
                # Told again: it hands back what runs.
                cancelled = True
                session.hand_back()
            if isinstance(failure, NotOpen):
                logger.warning("the docket was closed under worker %s, which stops", self.name)
                session.hand_back()
            try:
                with contextlib.suppress(NotOpen, TimeoutError):
                    async with asyncio.timeout(session.seconds_to_withdraw()):
                        await self.fetcher.withdraw()
            except asyncio.CancelledError:
                cancelled = True
                session.hand_back()
            cancelled = await self.draining.run(session.hand_back) or cancelled
        if cancelled:
            forget_cancels()
        if failure is not None and not isinstance(failure, NotOpen):
            raise failure

    def _tell_that_it_stops(self) -> None:
        """At once: if the process is killed before it has drained, its tasks are not to blame."""
        self._draining = True
        self.fetcher.begin_nothing()
        if len(self.runs):
            self.tenure.renew_now()

    @classmethod
    async def run(
        cls,
        docket_name: str = "docket",
        url: str = "redis://localhost:6379/0",
        name: str | None = None,
        concurrency: int = 10,
        redelivery_timeout: timedelta = timedelta(minutes=5),
        reconnection_delay: timedelta = timedelta(seconds=5),
        minimum_check_interval: timedelta = timedelta(milliseconds=250),
        scheduling_resolution: timedelta = timedelta(milliseconds=250),
        schedule_automatic_tasks: bool = True,
        enable_internal_instrumentation: bool = False,
        until_finished: bool = False,
        healthcheck_port: int | None = None,
        metrics_port: int | None = None,
        tasks: Sequence[str] = ("docket.tasks:standard_tasks",),
        fallback_task: str | None = None,
        message_batch: int = 1000,
        dependencies: Mapping[str, Any] | Sequence[Any] | str | None = None,
        *,
        grace_period: timedelta = timedelta(minutes=5),
        wait: timedelta = timedelta(seconds=30),
    ) -> None:
        """Runs a worker as a program does: loads the tasks (and what else is named as `module:name`), serves health and
        metrics, and stops on SIGTERM and SIGINT. Raises ServerUnreachable if the server is not there within `wait`."""
        check_durations("Worker.run", wait=wait)
        await run_program(
            cls,
            Docket(docket_name, url, enable_internal_instrumentation=enable_internal_instrumentation),
            wait=wait,
            tasks=tasks,
            fallback_task=fallback_task,
            dependencies=dependencies,
            until_finished=until_finished,
            healthcheck_port=healthcheck_port,
            metrics_port=metrics_port,
            name=name,
            concurrency=concurrency,
            redelivery_timeout=redelivery_timeout,
            reconnection_delay=reconnection_delay,
            minimum_check_interval=minimum_check_interval,
            scheduling_resolution=scheduling_resolution,
            schedule_automatic_tasks=schedule_automatic_tasks,
            enable_internal_instrumentation=enable_internal_instrumentation,
            message_batch=message_batch,
            grace_period=grace_period,
        )

    # The lease

    @property
    def id(self) -> str:
        return self.tenure.id

    @property
    def keeper(self) -> LeaseKeeper:
        return self.tenure.keeper

    def _new_tenure(self) -> Tenure:
        events = TenureEvents(
            self._renewed,
            self._lease_lost,
            self._cut_off,
            self._forgotten,
            self._staging_is_due,
            self._functions_wait,
            self._moved,
        )
        beat = self.docket.heartbeat_interval.total_seconds()
        return Tenure(
            self.docket.ledger,
            self.name,
            self.lease_ms,
            beat,
            self._occupation,
            self.labels(),
            events,
            self.server_clock,
            self.duties,
        )

    async def _leave(self) -> None:
        if self._session is not None:
            self.docket.attached.is_silent = not await self.tenure.close(self._session.seconds_to_leave())

    def _occupation(self) -> Occupation:
        return Occupation(len(self.runs), self.fetcher.is_offering, self.is_stopping, self.fetcher.reading_client)

    def _renewed(self, renewal: Renewal) -> None:
        self.orders.carry_out(renewal.orders)
        self.runner.hand_back_given_up()
        if len(self.tenure.task_names) != len(self.docket.tasks):
            self.tenure.register_again(list(self.docket.tasks), max_losses_of(self.docket.tasks))

    def _staging_is_due(self) -> None:
        """By the wall clock; one that a test holds is moved on by the test, which stages then."""
        if not self.docket.server.clock.is_held:
            self.stager.summon()

    def _lease_lost(self) -> None:
        """Others have our work: every call is cancelled and nothing is written."""
        logger.warning("worker %s lost its lease: %d running task(s) are given up", self.name, len(self.runs))
        self.runs.cancel_all(CancelReason.LEASE_LOST)
        self.runner.forget_given_up()

    def _cut_off(self) -> None:
        if len(self.runs):
            logger.warning(
                "worker %s cannot reach the server and its lease has ended: running tasks are given up",
                self.name,
            )
            self.runs.cancel_all(CancelReason.CUT_OFF)

    def _forgotten(self) -> None:
        """The server came back empty: automatic tasks are missing, too."""
        self.seeder.hurry()

    def _functions_wait(self, names: Sequence[str]) -> None:
        """Tasks of these functions wait for a worker that knows them."""
        self.fetcher.bring_forward(name for name in names if name in self.docket.tasks)

    async def _moved(self, id: str) -> None:
        """We go on under a new id."""
        self.sampler.worker = self.seeder.worker = id
        await self.orders.open(id)
        await self.fetcher.move(id)


def _first_failure(tasks: Iterable[asyncio.Task[Any]]) -> BaseException | None:
    for task in tasks:
        if task.done() and not task.cancelled() and task.exception() is not None:
            return task.exception()
    return None
