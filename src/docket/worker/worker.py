"""The worker: takes tasks from a docket and runs them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar, Token
from datetime import datetime, timedelta
from typing import Annotated, Any, Self

from docket.dependencies import Dependency, current_docket, current_worker, validate_dependencies
from docket.dependencies.resolution import SharedValues
from docket.docket import Docket
from docket.errors import NotOpen
from docket.execution import Execution, TaskFunction, compact_signature
from docket.execution.arguments import resolved_signature
from docket.execution.context import DocketContext
from docket.ledger.fleet import as_json
from docket.model.options import NAMED_OBJECT, OPERATING, TUNING, Option, check_options, declared_options
from docket.model.times import check_durations, from_ms

from .children.children import available_processors
from .finished import wait_until_finished
from .health import health_problem
from .lease.lease import ServerClock
from .parts import Parts, Until, open_parts
from .program import run_program
from .running.call import worker_dependencies
from .running.reporter import Reporter
from .running.runs import Runs
from .session import WorkerSession, clear_pending_cancels, raise_pending_cancel

logger: logging.Logger = logging.getLogger("docket.worker")

# A worker with more slots than this starts no more threads, unless it is asked to.
MOST_THREADS = 100


class Worker:
    """Runs the tasks of a docket. An async context manager.

    The worker runs `concurrency` tasks at a time: plain functions in `threads` threads, functions
    that declare `Process` in `cpu_processes` children. If it dies, other workers get its tasks
    after `redelivery_timeout` or the docket's heartbeat time-out, whichever is sooner. On shutdown,
    running tasks have `grace_period` to finish; the worker requeues the rest. It does not poll, so
    `minimum_check_interval`, `scheduling_resolution` and `message_batch` have no effect.
    """

    def __init__(
        self,
        docket: Docket,
        name: Annotated[str | None, Option("The worker's name.", metavar="NAME", default="host#pid")] = None,
        concurrency: Annotated[int, Option("Run at most this many tasks at a time.", least=1)] = 10,
        redelivery_timeout: Annotated[
            timedelta,
            Option(
                "Give the tasks of a silent worker to other workers after this long.", is_positive=True, panel=TUNING
            ),
        ] = timedelta(minutes=5),
        reconnection_delay: Annotated[
            timedelta, Option("The longest pause between attempts to reconnect to the server.", panel=TUNING)
        ] = timedelta(seconds=5),
        minimum_check_interval: Annotated[
            timedelta, Option("Accepted for compatibility, without effect: docket does not poll.", panel=TUNING)
        ] = timedelta(milliseconds=250),
        scheduling_resolution: Annotated[
            timedelta, Option("Accepted for compatibility, without effect: due tasks wake the worker.", panel=TUNING)
        ] = timedelta(milliseconds=250),
        schedule_automatic_tasks: Annotated[
            bool, Option("Schedule tasks that start by themselves (Perpetual, Cron).", panel=TUNING)
        ] = True,
        enable_internal_instrumentation: Annotated[
            bool, Option("Also trace docket's own requests to the server.", panel=OPERATING)
        ] = False,
        fallback_task: Annotated[
            TaskFunction | None,
            Option(
                "The function that runs tasks whose own function is unknown.",
                metavar=NAMED_OBJECT,
                variables=("DOCKET_FALLBACK_TASK",),
                panel=TUNING,
                page="operators.md#functions-that-no-worker-knows",
            ),
        ] = None,
        dependencies: Annotated[
            Mapping[str, Any] | Sequence[Any] | None,
            Option("Dependencies of every task: a mapping or a sequence.", metavar=NAMED_OBJECT, panel=TUNING),
        ] = None,
        message_batch: Annotated[
            int, Option("Accepted for compatibility, without effect.", least=1, is_hidden=True)
        ] = 1000,
        *,
        grace_period: Annotated[
            timedelta,
            Option("On shutdown, let running tasks finish for this long, then requeue them.", panel=TUNING),
        ] = timedelta(minutes=5),
        threads: Annotated[
            int | None,
            Option(
                "Run plain functions (not async) in at most this many threads.",
                least=1,
                default=f"as --concurrency, up to {MOST_THREADS}",
                page="functions.md",
            ),
        ] = None,
        cpu_processes: Annotated[
            int | None,
            Option(
                "Run functions that declare Process in at most this many child processes.",
                least=1,
                default="the number of processors",
                page="functions.md#functions-in-processes",
            ),
        ] = None,
    ) -> None:
        if isinstance(docket, str):
            raise TypeError(
                f"Worker({docket!r}): a worker takes an open docket; to start from a URL use Worker.run(url=…)"
            )
        check_options(Worker, locals())
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
        self.threads: int = threads or min(concurrency, MOST_THREADS)
        self.cpu_processes: int = cpu_processes or available_processors()
        self.dependencies: dict[str, Dependency[Any]] = worker_dependencies(dependencies)
        self.run_limits: dict[str, int] = {}
        self.reporter: Reporter = Reporter(self.labels(), {})
        self.server_clock: ServerClock = ServerClock()
        # None while the worker is closed.
        self._stack: AsyncExitStack | None = None
        self.shared: SharedValues = SharedValues()
        # The current session and its parts, or those of the last session.
        self._session: WorkerSession | None = None
        self._parts: Parts | None = None

    def labels(self) -> dict[str, str]:
        """Labels for traces and metrics."""
        return {**self.docket.labels(), "docket.worker": self.name}

    @property
    def staff(self) -> Parts:
        """The parts of this worker. Raises NotOpen before the first run."""
        if self._parts is None:
            raise NotOpen("the worker has not run yet")
        return self._parts

    @property
    def id(self) -> str:
        """The worker's id in the fleet: new for each session, and after a lost lease."""
        return self.staff.registration.id

    @property
    def runs(self) -> Runs:
        """The runs that this worker has."""
        return self.staff.runs

    def now_ms(self) -> float:
        """The server's time in milliseconds."""
        clock = self.docket.server.clock
        return clock.now_ms() if clock.is_frozen else self.server_clock.now_ms()

    def now(self) -> datetime:
        """The server's time."""
        return from_ms(self.now_ms())

    async def __aenter__(self) -> Self:
        assert self._stack is None, "this worker is already open"
        if self.fallback_task is not None:
            validate_dependencies(self.fallback_task)
        async with AsyncExitStack() as stack:
            self._session = None
            self.shared = SharedValues()
            # Runs last: shared values may use the current worker while they close.
            stack.callback(_BlockContext(self._variables()).leave)
            stack.push_async_callback(self.shared.aclose)
            self._stack = stack.pop_all()
        return self

    def _variables(self) -> list[tuple[ContextVar[Any], Any]]:
        return [(current_docket, self.docket), (current_worker, self), *self.shared.variables()]

    async def __aexit__(self, *exc_info: object) -> None:
        """First ends a session that runs in another asyncio task: within the grace period, or at
        once after an exception."""
        stack, self._stack = self._stack, None
        if stack is None:
            return
        try:
            await self.end_run(at_once=any(exc_info))
        finally:
            await stack.aclose()

    def is_inside(self) -> bool:
        """Whether the caller runs in this worker and therefore cannot wait for the worker's end."""
        return self._session is not None and self._session.is_inside()

    async def end_run(self, *, at_once: bool) -> None:
        """Ends a session that runs in another asyncio task, and returns when it has ended."""
        if self._session is not None:
            await self._session.end(at_once=at_once)

    def validate_task_dependencies(self, tasks: Iterable[TaskFunction] | None = None) -> None:
        """Raises ValueError if the dependencies of a task contradict each other."""
        for function in tasks if tasks is not None else self.docket.tasks.values():
            validate_dependencies(function)

    @property
    def is_working(self) -> bool:
        """It takes work."""
        return self._session is not None and self._session.is_working

    @property
    def is_stopping(self) -> bool:
        """It was told to stop, and has not ended."""
        return self._session is not None and self._session.is_stopping

    def health_problem(self) -> str | None:
        """Why the worker is unhealthy. None if it claims, renews, and its event loop responds."""
        if not self.is_working:
            return "starting" if not self.is_stopping else "stopped"
        return health_problem(self.staff)

    def readiness_problem(self) -> str | None:
        """Why the worker is not ready for work, or None."""
        return None if self.is_working and not self.is_stopping else "not ready"

    def body_waits(self, execution: Execution, docket: DocketContext, key: str) -> None:
        """Notes that the body of a run waits for a task that has not begun."""
        if (docket.name, docket.ledger.server.url) == (self.docket.name, self.docket.url):
            self.staff.deadlock_warning.note_wait(execution, key)

    # Running

    async def run_forever(self) -> None:
        """Runs tasks until the worker is cancelled or stopped; then finishes the running tasks."""
        await self._work(_never)

    async def run_until_finished(self) -> None:
        """Runs tasks until none is waiting, scheduled or running."""
        await self._work(self._finished, has_to_end=True)

    async def run_at_most(self, iterations_by_key: Mapping[str, int]) -> None:
        """Like run_until_finished, but runs each of the given keys at most as many times as given.
        For tasks that perpetuate themselves."""
        self.run_limits = dict(iterations_by_key)
        try:
            await self._work(self._finished, has_to_end=True)
        finally:
            self.run_limits = {}

    def stop(self) -> None:
        """Finishes the running tasks and returns. A second call requeues those that still run."""
        if self._session is not None:
            self._session.stop()

    async def _finished(self, parts: Parts) -> None:
        await wait_until_finished(self.docket, parts)

    async def _work(self, until: Until, *, has_to_end: bool = False) -> None:
        """Opens the parts of the worker and serves. parts.py has their order."""
        if self._stack is None:
            raise NotOpen("the worker is not open: use it inside `async with Worker(docket) as worker:`")
        assert self._session is None or self._session.is_over, "this worker is already running"
        self.docket.attached.attach(self)
        self._session = session = WorkerSession(self._abandoned, self.docket.attached)
        _log_start(self.name, self.docket.tasks, self.labels())
        try:
            async with AsyncExitStack() as stack:
                self._parts = await open_parts(self, session, stack, has_to_end=has_to_end)
                raise_pending_cancel()
                await self._parts.serve(until)
        except asyncio.CancelledError:
            # Cancelled during set-up: nothing runs yet, and the stack has closed the opened parts.
            clear_pending_cancels()
        finally:
            if not session.is_over:
                session.finish()
                self.docket.attached.detach(self)

    def _abandoned(self) -> None:
        """The event loop was closed during the session, which therefore never continues."""
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
        threads: int | None = None,
        cpu_processes: int | None = None,
        wait: timedelta = timedelta(seconds=30),
    ) -> None:
        """Runs a worker as a program: loads the tasks and other objects named as `module:name`,
        serves health and metrics, and stops on SIGTERM and SIGINT. Raises ServerUnreachable if the
        server does not answer within `wait`."""
        given = locals()
        options = {name: given[name] for name in declared_options(Worker)}
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


async def _never(parts: Parts) -> None:
    await asyncio.Event().wait()


class _BlockContext:
    """Sets context variables for the block, and restores their previous values after it."""

    def __init__(self, variables: Iterable[tuple[ContextVar[Any], Any]]) -> None:
        self._before: list[tuple[ContextVar[Any], Token[Any]]] = []
        for variable, value in variables:
            self._before.append((variable, variable.set(value)))

    def leave(self) -> None:
        for variable, token in reversed(self._before):
            # A block may be left in another context than it was entered in (by test fixtures and
            # frameworks). There is nothing to restore in that context.
            with contextlib.suppress(ValueError):
                variable.reset(token)


def _log_start(worker: str, tasks: Mapping[str, Callable[..., Any]], labels: Mapping[str, str]) -> None:
    """One line for the worker, and one for each task."""
    if not logger.isEnabledFor(logging.INFO):
        return
    logger.info("Starting worker %r with the following tasks:", worker, extra=dict(labels))
    for name, function in tasks.items():
        logger.info("* %s(%s)", name, _signature(function), extra=dict(labels))


def _signature(function: Callable[..., Any]) -> str:
    try:
        return compact_signature(resolved_signature(function))
    except Exception:
        # A signature that cannot be shown must not stop the worker.
        return "..."
