"""Runs a worker in this process."""

from __future__ import annotations

import asyncio
import logging
import signal
from types import FrameType
from typing import Self

from docket.cli.banner import announce
from docket.cli.event_loop import loop_factory
from docket.cli.failures import StopRequested, WrongUsage
from docket.cli.health_pipe import HealthPipe
from docket.cli.recycling import Recycling
from docket.cli.task_modules import check_tasks, load_dependencies
from docket.cli.worker_options import STANDARD_TASKS, WorkerOptions
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

    recycling = Recycling(options.max_tasks, options.max_memory)

    class AnnouncedWorker(Worker):
        _health_pipe: HealthPipe | None = None

        async def __aenter__(self) -> Self:
            await super().__aenter__()
            if options.banner:
                announce(self, options.logging_format)
            if health_pipe is not None:
                self._health_pipe = HealthPipe(health_pipe, self.health_problem, lambda: recycling.reason(self))
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
