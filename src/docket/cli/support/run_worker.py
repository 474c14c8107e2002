"""Runs a worker in this process: its banner, and its reports to the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Self

from docket._version import __version__
from docket.child.memory import memory_in_use
from docket.cli.support.connect import loop_factory
from docket.cli.support.failures import StopRequested, WrongUsage
from docket.cli.support.logs import Format
from docket.cli.support.task_modules import check_tasks, load_dependencies
from docket.cli.support.worker_options import STANDARD_TASKS, WorkerOptions
from docket.model.amounts import show_size
from docket.storage.client.urls import ServerKind, parse
from docket.worker import Worker
from docket.worker.program import run_program

logger: logging.Logger = logging.getLogger("docket.worker")


def run_worker(options: WorkerOptions, health_pipe: int | None = None) -> int:
    """Runs a worker until it stops, and returns the exit code."""
    # Before the worker installs its own signal handlers, no task runs that would have to finish.
    signal.signal(signal.SIGTERM, _end_at_once)
    docket = options.docket.load()
    docket.enable_internal_instrumentation |= options.worker["enable_internal_instrumentation"]
    check_can_be_shared(docket.url, options.all_processes)
    check_tasks(docket, options.tasks, options.worker["fallback_task"])
    arguments = {**options.worker, "dependencies": load_dependencies(options.worker["dependencies"])}
    announced = _worker_class(options, health_pipe)
    with asyncio.Runner(loop_factory=loop_factory(options.uvloop)) as runner:
        runner.run(
            run_program(
                announced,
                docket,
                wait=options.wait,
                until_finished=options.until_finished,
                healthcheck_port=options.healthcheck_port,
                healthcheck_host=options.healthcheck_host,
                metrics_port=options.metrics_port,
                metrics_host=options.metrics_host,
                metrics_port_is_shared=options.recycles,
                **arguments,
            )
        )
    return 0


def check_can_be_shared(url: str, processes: int) -> None:
    if processes > 1 and parse(url).kind is ServerKind.MEMORY:
        raise WrongUsage(
            f"--url {url}: each process has its own memory://, so {processes} worker processes would not share "
            "their tasks; use a server, or embedded:///path/to/folder"
        )


def warn_of_tasks(options: WorkerOptions, logger: logging.Logger = logger) -> None:
    if options.docket.app is None and options.tasks == (STANDARD_TASKS,) and options.worker["fallback_task"] is None:
        logger.warning(
            "without --tasks this worker knows only docket's built-in tasks; name yours, as in --tasks shop.tasks:tasks"
        )


def _end_at_once(number: int, frame: FrameType | None) -> None:
    raise StopRequested(0)


def _worker_class(options: WorkerOptions, health_pipe: int | None) -> type[Worker]:
    """A worker that logs the banner when it starts, and
    reports its health to its supervisor, if it has one."""

    limits = ReplacementLimits(options.max_tasks, options.max_memory)

    class AnnouncedWorker(Worker):
        _health_pipe: HealthPipe | None = None

        async def __aenter__(self) -> Self:
            await super().__aenter__()
            if options.banner:
                announce(self, options.logging_format)
            if health_pipe is not None:
                self._health_pipe = HealthPipe(health_pipe, self.health_problem, lambda: limits.reason(self))
                self._health_pipe.start()
            return self

        async def run_forever(self) -> None:
            self._warn()
            await super().run_forever()

        async def run_until_finished(self) -> None:
            self._warn()
            await super().run_until_finished()

        def _warn(self) -> None:
            # Only after a successful start, so that a start that fails prints nothing but its
            # error. A supervisor logs the warning once for all its processes.
            if health_pipe is None:
                warn_of_tasks(options)

        async def __aexit__(self, *exc_info: object) -> None:
            if self._health_pipe is not None:
                self._health_pipe.stop()
            await super().__aexit__(*exc_info)

    return AnnouncedWorker


@dataclass(frozen=True)
class Banner:
    """The worker, its docket and its server. The tasks are
    not part of the banner: the worker logs them itself."""

    worker: str
    docket: str
    url: str
    engine: str
    concurrency: int

    def rows(self) -> Sequence[tuple[str, str]]:
        """The names and values of a panel."""
        return (
            ("docket", self.docket),
            ("server", f"{self.url}  ({self.engine})"),
            ("worker", self.worker),
            ("concurrency", str(self.concurrency)),
        )

    def line(self) -> str:
        return (
            f"docket {__version__}: worker {self.worker!r} works on docket {self.docket!r} at {self.url} "
            f"({self.engine}), concurrency {self.concurrency}"
        )


def banner(worker: Worker) -> Banner:
    server = worker.docket.server
    return Banner(
        worker.name,
        worker.docket.name,
        server.shown_url,
        f"{server.engine_name} {server.engine_version}",
        worker.concurrency,
    )


def announce(worker: Worker, format: Format | None) -> None:
    if not logger.isEnabledFor(logging.INFO):
        return
    facts = banner(worker)
    if format is Format.RICH:
        # Imported lazily: only a terminal needs panels.
        importlib.import_module("docket.cli.support.rich_logs").show_banner(facts.rows())
        return
    extra = {
        "docket.name": facts.docket, "docket.worker": facts.worker, "url": facts.url, "engine": facts.engine,
        "concurrency": facts.concurrency,
    }  # fmt: skip
    logger.info("%s", facts.line(), extra=extra)


REPORT_SECONDS = 1.0


class HealthPipe:
    """Writes the worker's health from its own thread, so that reports go on while the event loop is
    blocked.

    A supervisor that is gone can no longer forward signals.
    The worker then stops, as after a SIGTERM.
    """

    def __init__(
        self, pipe: int, problem: Callable[[], str | None], recycle: Callable[[], str | None] = lambda: None
    ) -> None:
        self._pipe = pipe
        self._problem = problem
        # Why this process should be replaced, if it should.
        self._recycle = recycle
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="docket - reporting", daemon=True)

    def start(self) -> None:
        os.set_inheritable(self._pipe, False)
        os.set_blocking(self._pipe, False)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        # Frequent at first: the supervisor waits for the start of the worker.
        pause = 0.05
        while not self._stopped.wait(pause):
            problem = self._problem()
            pause = REPORT_SECONDS if problem is None else min(pause * 2, REPORT_SECONDS)
            try:
                # If the pipe is full, drop this report: the next one replaces it.
                with contextlib.suppress(BlockingIOError):
                    report = {"problem": problem, "recycle": self._recycle()}
                    os.write(self._pipe, json.dumps(report).encode() + b"\n")
            except OSError:
                os.kill(os.getpid(), signal.SIGTERM)
                return


@dataclass(frozen=True, slots=True)
class ReplacementLimits:
    """The limits of one worker process. Beyond one of them, the supervisor replaces it."""

    max_tasks: int | None = None
    max_memory: int | None = None

    def reason(self, worker: Worker) -> str | None:
        """Why the process of this worker should be replaced, or None. Safe to call from any
        thread."""
        if not worker.is_working or worker.is_stopping:
            return None
        parts = worker.staff
        runs = parts.run_closer.ended_runs
        if self.max_tasks is not None and runs >= self.max_tasks:
            return f"it has run {runs:,} tasks"
        if self.max_memory is not None and (memory := memory_in_use()) > self.max_memory:
            return f"it holds {show_size(memory)} of memory"
        if parts.threads.abandoned * 2 > parts.threads.count:
            return f"{parts.threads.abandoned} of its threads are abandoned"
        return None
