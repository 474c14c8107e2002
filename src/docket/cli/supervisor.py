"""Several worker processes, or one that is restarted when its source changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from docket.cli.source_watcher import SourceWatcher
from docket.cli.worker_options import WorkerOptions
from docket.cli.worker_process import GaveUp, WorkerProcess
from docket.instrumentation import healthcheck_server

logger: logging.Logger = logging.getLogger("docket.supervisor")


class Supervisor:
    """Keeps worker processes running, passes signals on
    to them, and answers for their health on one port."""

    def __init__(
        self,
        options: WorkerOptions,
        processes: int,
        *,
        reload: bool = False,
        when_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._health_port = options.healthcheck_port
        self._reload = reload
        # Said once the first process works: an error that keeps it from that is the only line.
        self._when_up = when_up
        self._orders = 0
        base = options.name or f"{socket.gethostname()}#{os.getpid()}"
        self._processes = [
            WorkerProcess(_for_process(options, base, index, processes), patient=reload) for index in range(processes)
        ]

    def run(self) -> int:
        """Runs until told to stop, until nothing is left to do,
        or until the processes cannot start; the exit code."""
        with asyncio.Runner() as runner:
            return runner.run(self._run())

    def problem(self) -> str | None:
        """Why not all processes take work, or None."""
        problems = [
            f"{process.name}: {problem}" for process in self._processes if (problem := process.problem()) is not None
        ]
        return "; ".join(problems) or None

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_requested)
        with healthcheck_server(port=self._health_port, health=self.problem):
            watching = asyncio.create_task(self._watch_sources()) if self._reload else None
            try:
                return await self._keep_all_running()
            finally:
                if watching is not None:
                    watching.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await watching

    async def _keep_all_running(self) -> int:
        """The first process goes ahead: what keeps it from
        starting would keep the others too, and is said once."""
        running = [asyncio.create_task(self._processes[0].keep_running())]
        up = asyncio.create_task(self._processes[0].well_once.wait())
        await asyncio.wait([*running, up], return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if not running[0].done() and not self._orders:
            self._when_up()
            running += [asyncio.create_task(process.keep_running()) for process in self._processes[1:]]
        try:
            codes = await asyncio.gather(*running)
        except GaveUp as failure:
            self._stop_all()
            await asyncio.gather(*running, return_exceptions=True)
            return failure.code
        return max((1 if code not in (0, -signal.SIGTERM) else 0 for code in codes), default=0)

    def _stop_requested(self) -> None:
        self._orders += 1
        if self._orders == 1:
            logger.info("stopping: running tasks are finished first; told again, they are handed back")
        self._stop_all()

    def _stop_all(self) -> None:
        for process in self._processes:
            process.stop()

    async def _watch_sources(self) -> None:
        watcher = SourceWatcher(Path.cwd())
        logger.info("watching %s for changes", Path.cwd())
        while True:
            changed = await watcher.next_change()
            logger.info("%s changed: starting anew", changed)
            await asyncio.gather(*(process.reload() for process in self._processes))


def _for_process(options: WorkerOptions, base: str, index: int, processes: int) -> WorkerOptions:
    """Names and metrics ports are each process's own, the health
    port is the supervisor's; one introduction will do."""
    return options.changed(
        name=f"{base}-{index + 1}" if processes > 1 else base,
        healthcheck_port=None,
        metrics_port=None if options.metrics_port is None else options.metrics_port + index,
        banner=options.banner and index == 0,
    )
