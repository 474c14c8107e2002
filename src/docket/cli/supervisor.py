"""Supervises several worker processes, or one that restarts when its source changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from docket.cli.replacements import Replacements, is_worn_out
from docket.cli.source_watcher import SourceWatcher
from docket.cli.worker_options import WorkerOptions
from docket.cli.worker_process import GaveUp, WorkerProcess
from docket.instrumentation import healthcheck_server

logger: logging.Logger = logging.getLogger("docket.supervisor")

# The exit codes of worker processes that have stopped. A signal ends a process that does not handle
# signals yet. Ctrl-C reaches it if it has not left the process group of its supervisor yet.
STOPPED = (0, -signal.SIGTERM, -signal.SIGINT)


class Supervisor:
    """Keeps worker processes running, forwards signals to
    them, and serves the health of all of them on one port."""

    def __init__(
        self,
        options: WorkerOptions,
        processes: int,
        *,
        reload: bool = False,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        self._health_host, self._health_port = options.healthcheck_host, options.healthcheck_port
        self._reload = reload
        # Called when the first process has started, so that
        # a start that fails prints nothing but its error.
        self._on_started = on_started
        self._stop_requests = 0
        self._replacements = Replacements()
        base = options.name or f"{socket.gethostname()}#{os.getpid()}"
        self._processes = [
            WorkerProcess(_for_process(options, base, index, processes), keep_trying=reload)
            for index in range(processes)
        ]

    def run(self) -> int:
        """Returns the exit code after a signal, when no task
        is left, or when the worker processes cannot start."""
        with asyncio.Runner() as runner:
            return runner.run(self._run())

    def problem(self) -> str | None:
        """The reason why some worker process takes no work, or None."""
        problems = [
            f"{process.name}: {problem}" for process in self._processes if (problem := process.problem()) is not None
        ]
        return "; ".join(problems) or None

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_requested)
        with healthcheck_server(self._health_host, self._health_port, health=self.problem):
            watching = asyncio.create_task(self._watch_sources()) if self._reload else None
            try:
                return await self._keep_all_running()
            finally:
                if watching is not None:
                    watching.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await watching

    async def _keep_all_running(self) -> int:
        """Starts the first process alone: an error that keeps it from starting
        would hit every process, and the user should read it only once."""
        running = [asyncio.create_task(self._keep_running(0))]
        started = asyncio.create_task(self._processes[0].has_started.wait())
        await asyncio.wait([*running, started], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if not running[0].done() and not self._stop_requests:
            self._on_started()
            running += [asyncio.create_task(self._keep_running(index)) for index in range(1, len(self._processes))]
        try:
            codes = await asyncio.gather(*running)
        except GaveUp as failure:
            self._stop_all()
            await asyncio.gather(*running, return_exceptions=True)
            return failure.code
        await self._replacements.wait()
        return max((0 if code in STOPPED else 1 for code in codes), default=0)

    async def _keep_running(self, index: int) -> int:
        """Keeps the process at this position running, and replaces it when it is worn out."""
        running = asyncio.create_task(self._processes[index].keep_running())
        while await is_worn_out(self._processes[index], running) and not self._stop_requests:
            self._processes[index], running = await self._replacements.replace(self._processes[index], running)
        return await running

    def _stop_requested(self) -> None:
        self._stop_requests += 1
        if self._stop_requests == 1:
            logger.info("stopping: running tasks finish first; a second signal requeues them")
        self._stop_all()

    def _stop_all(self) -> None:
        for process in [*self._processes, *self._replacements.others]:
            process.stop()

    async def _watch_sources(self) -> None:
        watcher = SourceWatcher(Path.cwd())
        logger.info("watching %s for changes", Path.cwd())
        while True:
            changed = await watcher.next_change()
            logger.info("%s changed: restarting", changed)
            await asyncio.gather(*(process.reload() for process in self._processes))


def _for_process(options: WorkerOptions, base: str, index: int, processes: int) -> WorkerOptions:
    """The options of one worker process. Each process has its own name and metrics port, the
    supervisor serves the health port, and only the first process logs the banner."""
    return options.named(f"{base}-{index + 1}" if processes > 1 else base).changed(
        healthcheck_port=None,
        metrics_port=None if options.metrics_port is None else options.metrics_port + index,
        banner=options.banner and index == 0,
    )
