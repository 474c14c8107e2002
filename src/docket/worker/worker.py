"""The worker: takes tasks from a docket and runs them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Self

from docket.dependencies import Dependency, current_docket, current_worker, validate_dependencies
from docket.docket import Docket
from docket.errors import NotOpen
from docket.execution import Execution, TaskFunction
from docket.execution.docket_view import DocketView
from docket.ledger.workers import as_json
from docket.model.times import check_durations, duration_ms, from_ms

from .block_context import BlockContext
from .cancel_notice import forget_cancels, notice_cancel
from .finished import wait_until_finished
from .health import health_problem, readiness_problem
from .options import WorkerOptions
from .own_dependencies import worker_dependencies
from .program import run_program
from .reporter import Reporter
from .runs import Runs
from .server_clock import ServerClock
from .session import Session
from .shared_values import SharedValues
from .staff import Staff, Until, open_staff
from .task_list import log_start


class Worker:
    """Runs the tasks of a docket. An async context manager.

    `concurrency` tasks run at a time. A worker that dies loses its tasks to the others
    after `redelivery_timeout` or the docket's heartbeat time-out, whichever is sooner;
    one that lives keeps them, however long they take. On shutdown running tasks have
    `grace_period` to finish; the rest is handed back. Nothing is polled, and no more
    is taken than there are slots for within a moment: `minimum_check_interval`,
    `scheduling_resolution` and `message_batch` are accepted and unused.
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
        # Which values are refused is written there.
        self.options: WorkerOptions = WorkerOptions.of(locals())
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
        # While the worker is open.
        self._stack: AsyncExitStack | None = None
        self.shared: SharedValues = SharedValues()
        # Of the run that goes on, or of the last one.
        self._session: Session | None = None
        self._staff: Staff | None = None

    def labels(self) -> dict[str, str]:
        return {**self.docket.labels(), "docket.worker": self.name}

    @property
    def staff(self) -> Staff:
        """The parts of this worker, once it runs."""
        if self._staff is None:
            raise NotOpen("the worker has not run yet")
        return self._staff

    @property
    def id(self) -> str:
        """The worker's name in the fleet: new for each run, and after a lost lease."""
        return self.staff.registration.id

    @property
    def runs(self) -> Runs:
        return self.staff.runs

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
            self._session = None
            self.shared = SharedValues()
            # Left last: values that are closed may look at the worker.
            stack.callback(BlockContext(self._variables()).leave)
            stack.push_async_callback(self.shared.aclose)
            self._stack = stack.pop_all()
        return self

    def _variables(self) -> list[tuple[ContextVar[Any], Any]]:
        return [(current_docket, self.docket), (current_worker, self), *self.shared.variables()]

    async def __aexit__(self, *exc_info: object) -> None:
        """Ends a run that goes on in another asyncio task first:
        within the grace period, at once after an exception."""
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
        return self._session is not None and self._session.is_working

    @property
    def is_stopping(self) -> bool:
        return self._session is not None and self._session.is_stopping

    def health_problem(self) -> str | None:
        """Why the worker is not well, or None if it claims, renews and its event loop turns."""
        return health_problem(self)

    def readiness_problem(self) -> str | None:
        return readiness_problem(self)

    def body_waits(self, execution: Execution, docket: DocketView, key: str) -> None:
        """The body of one of our runs waits for a task that has not begun."""
        if (docket.name, docket.ledger.server.url) == (self.docket.name, self.docket.url):
            self.staff.waiting_bodies.note(execution, key)

    # Working

    async def run_forever(self) -> None:
        """Works until it is cancelled or told to stop; then finishes what runs and returns."""
        await self._work(_never)

    async def run_until_finished(self) -> None:
        """Works until nothing is waiting or running, future work included."""
        await self._work(self._finished, has_to_end=True)

    async def run_at_most(self, iterations_by_key: Mapping[str, int]) -> None:
        """As run_until_finished, with at most so many runs of the given keys: for tasks that
        perpetuate themselves."""
        self.run_limits = dict(iterations_by_key)
        try:
            await self._work(self._finished, has_to_end=True)
        finally:
            self.run_limits = {}

    def stop(self) -> None:
        """Asks the worker to finish what runs and return.
        Asked again, it hands back what still runs."""
        if self._session is not None:
            self._session.stop()

    async def _finished(self, staff: Staff) -> None:
        await wait_until_finished(self.docket, staff)

    async def _work(self, until: Until, *, has_to_end: bool = False) -> None:
        """The parts of the worker, and the order in which they start and stop, are in staff.py."""
        if self._stack is None:
            raise NotOpen("the worker is not open: use it inside `async with Worker(docket) as worker:`")
        assert self._session is None or self._session.is_over, "this worker is already running"
        self.docket.attached.attach(self)
        self._session = session = Session(self._abandoned, self.docket.attached)
        log_start(self.name, self.docket.tasks, self.labels())
        try:
            async with AsyncExitStack() as stack:
                self._staff = await open_staff(self, session, stack, has_to_end=has_to_end)
                notice_cancel()
                await self._staff.serve(until)
        except asyncio.CancelledError:
            # During set-up: nothing runs yet, and what was opened is closed.
            forget_cancels()
        finally:
            if not session.is_over:
                session.finish()
                self.docket.attached.detach(self)

    def _abandoned(self) -> None:
        """The event loop was closed under the run, which will never go on."""
        if self.is_working:
            self.staff.registration.abandon()
        self.docket.attached.detach(self)

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
        """Runs a worker as a program does: loads the tasks (and what else is named as
        `module:name`), serves health and metrics, and stops on SIGTERM and SIGINT. Raises
        ServerUnreachable if the server is not there within `wait`."""
        options = WorkerOptions.among(locals())
        check_durations("Worker.run", wait=wait)
        await run_program(
            cls,
            Docket(docket_name, url, enable_internal_instrumentation=enable_internal_instrumentation),
            wait=wait,
            tasks=tasks,
            until_finished=until_finished,
            healthcheck_port=healthcheck_port,
            metrics_port=metrics_port,
            **options,
        )


async def _never(staff: Staff) -> None:
    await asyncio.Event().wait()
