"""Supervises several worker processes, or one that restarts when its source changes. Replaces
processes that are worn out, without a gap in service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from docket.cli.support.worker_options import WorkerOptions
from docket.cli.support.worker_process import GaveUp, WorkerProcess
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


# Between two attempts to replace a process whose replacement does not start.
RETRY_SECONDS = 30.0
# A process works at least this long before it is replaced: a limit that every process exceeds at
# once must not keep the machine busy with starting processes.
LEAST_SECONDS = 10.0

Running = asyncio.Task[int]


async def is_worn_out(process: WorkerProcess, running: Running) -> bool:
    """Waits until the process asks to be replaced, or has ended for good. False in that case."""
    worn_out = asyncio.create_task(process.is_worn_out.wait())
    await asyncio.wait([running, worn_out], return_when=asyncio.FIRST_COMPLETED)
    worn_out.cancel()
    if not running.done():
        age = time.monotonic() - process.working_since
        await asyncio.wait([running], timeout=max(LEAST_SECONDS - age, 0.0))
    return not running.done()


class Replacements:
    """The processes that are on their way: new ones that do not work yet, and old ones that drain.

    One process is replaced at a time, so that processes that grew old together do not restart
    together.
    """

    def __init__(self) -> None:
        self.others: set[WorkerProcess] = set()
        self._leaving: set[Running] = set()
        self._turn = asyncio.Lock()

    async def replace(self, old: WorkerProcess, running: Running) -> tuple[WorkerProcess, Running]:
        """Starts a new process. When it takes work, the old one drains and leaves. If the new one
        does not start, the old one stays, and is replaced later. Returns the process that stays."""
        async with self._turn:
            logger.info("worker %s is replaced: %s", old.name, old.worn_out_because)
            new = WorkerProcess(old.options, keep_trying=False)
            starting = asyncio.create_task(new.keep_running())
            if await self._starts(new, starting, running):
                self._leave(old, running)
                return new, starting
            self._leave(new, starting)
            if not running.done() and not old.is_stopping:
                logger.warning("worker %s could not be replaced; it goes on", old.name)
                await asyncio.wait([running], timeout=RETRY_SECONDS)
                old.is_worn_out.clear()
            return old, running

    async def wait(self) -> None:
        """Returns when the processes that leave have ended."""
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def _starts(self, new: WorkerProcess, starting: Running, running: Running) -> bool:
        """Whether the new process takes work, before the old one has ended for good."""
        self.others.add(new)
        started = asyncio.create_task(new.has_started.wait())
        await asyncio.wait([starting, started, running], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        self.others.discard(new)
        return new.has_started.is_set() and not starting.done() and not new.is_stopping

    def _leave(self, process: WorkerProcess, running: Running) -> None:
        if not process.is_stopping:
            # A second request would cut its runs short.
            process.stop()
        self.others.add(process)
        self._leaving.add(running)
        running.add_done_callback(lambda task: self._left(process, task))

    def _left(self, process: WorkerProcess, task: Running) -> None:
        self.others.discard(process)
        self._leaving.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.warning("worker %s ended with %s", process.name, task.exception())


CHECK_SECONDS = 0.5
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})


class SourceWatcher:
    """Compares the modification times of the `.py` files below a
    folder. Skips hidden folders and virtual environments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._times = self._read_times()

    async def next_change(self) -> str:
        """Waits until a file is changed, added or removed. Returns its path below the folder."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            now = await asyncio.to_thread(self._read_times)
            before, self._times = self._times, now
            if now != before:
                different = {path for path, _ in now.items() ^ before.items()}
                return min(different).removeprefix(f"{self._folder}{os.sep}")

    def _read_times(self) -> dict[str, int]:
        return dict(_source_files(str(self._folder)))


def _source_files(folder: str) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        # The folder was removed in the meantime.
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _source_files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat().st_mtime_ns
        except OSError:
            continue
