"""Keeps one worker process running and restarts it with back-off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time

from docket._aio import cancel_and_wait
from docket.cli.support.failures import FAILED, WRONG_USAGE
from docket.cli.support.worker_options import WorkerOptions

logger: logging.Logger = logging.getLogger("docket.supervisor")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
# A process that ran this long restarts without a growing pause.
STABLE_SECONDS = 30.0
# A process that has not reported for this long counts as unhealthy.
SILENCE_SECONDS = 5.0
# On a reload, running tasks may finish for this long. Then they are requeued.
RELOAD_GRACE_SECONDS = 3.0
LAST_REPORT_SECONDS = 0.5


class GaveUp(Exception):
    """The process cannot start, and a restart would not help."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class WorkerProcess:
    """Starts a worker process, and restarts it when it ends."""

    def __init__(self, options: WorkerOptions, *, keep_trying: bool) -> None:
        self.options = options
        self.name: str = str(options.name)
        self.has_started: asyncio.Event = asyncio.Event()
        # Set when the process asks to be replaced.
        self.is_worn_out: asyncio.Event = asyncio.Event()
        self.worn_out_because: str | None = None
        self.working_since: float = time.monotonic()
        self._keep_trying = keep_trying
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._reloading = False
        self._changed = asyncio.Event()
        self._pause = FIRST_PAUSE_SECONDS
        self._problem: str | None = "starting"
        self._reported_at = time.monotonic()

    def problem(self) -> str | None:
        """The reason why this process takes no work, or None. Safe to call from any thread."""
        if self._problem is not None:
            return self._problem
        silence = time.monotonic() - self._reported_at
        return f"no report for {silence:.0f} s" if silence > SILENCE_SECONDS else None

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    # Requests of the supervisor

    def stop(self) -> None:
        """Asks the process to finish its tasks and exit. A second call makes it requeue them."""
        self._stopping = True
        self._changed.set()
        self._signal()

    async def reload(self) -> None:
        """Restarts the process."""
        self._changed.set()
        if self._process is None or self._process.returncode is not None:
            return
        self._reloading = True
        old = self._process
        self._signal()
        await asyncio.sleep(RELOAD_GRACE_SECONDS)
        if old.returncode is None and self._process is old:
            self._signal()

    def _signal(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                # Not `send_signal`: it takes the exit code of a process that
                # has just ended, and asyncio reports 255 in its place.
                os.kill(self._process.pid, signal.SIGTERM)

    # The process

    async def keep_running(self) -> int:
        """Returns the exit code of the last process,
        after `stop` or when no task is left."""
        while True:
            began = time.monotonic()
            code = await self._run_process()
            if self._stopping or (self.options.until_finished and code == 0):
                return code
            if self._reloading:
                self._reloading = False
                continue
            if not self._keep_trying and (code == WRONG_USAGE or (code >= 0 and not self.has_started.is_set())):
                raise GaveUp(code or FAILED)
            if time.monotonic() - began >= STABLE_SECONDS:
                self._pause = FIRST_PAUSE_SECONDS
            await self._wait_before_restart(code)
            if self._stopping:
                return 0

    async def _wait_before_restart(self, code: int) -> None:
        self._changed.clear()
        if self._keep_trying and code == WRONG_USAGE:
            logger.warning("worker %s cannot start; waiting for a file to change", self.name)
            await self._changed.wait()
            return
        logger.warning("worker %s ended (%s); starting it again in %.1f s", self.name, _ending(code), self._pause)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    async def _run_process(self) -> int:
        """Starts a process and waits for its end. Returns its exit code,
        or the negative number of the signal that killed it."""
        readable, writable = os.pipe()
        try:
            self._process = await self._start(writable)
        except OSError as error:
            # The system has no memory or no process left. That may be temporary.
            logger.warning("worker %s cannot be started: %s", self.name, error)
            os.close(readable)
            return FAILED
        finally:
            os.close(writable)
        if self._stopping:
            # `stop` was called while the process was starting.
            self._signal()
        reading = asyncio.create_task(self._read_reports(readable))
        try:
            return await self._process.wait()
        finally:
            # The last report may still be in the pipe. Do not wait for the end
            # of the pipe: a process that a task has forked may keep it open.
            await asyncio.wait([reading], timeout=LAST_REPORT_SECONDS)
            await cancel_and_wait([reading], "docket: the process has ended")
            self._problem = "not running"

    async def _start(self, health_pipe: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command(health_pipe),
            env={**os.environ, **self.options.environment()},
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[health_pipe],
            # A terminal sends Ctrl-C to its whole process group. In
            # its own group, the process gets it only from the supervisor.
            process_group=0,
        )

    def _command(self, health_pipe: int) -> list[str]:
        # -P keeps a docket.py in the current folder from hiding the
        # package. The worker adds the folder to its path itself.
        program = [sys.executable, "-P", "-m", "docket", "worker"]
        return [*program, "--name", self.name, "--processes", "1", "--no-reload", "--health-pipe", str(health_pipe)]

    async def _read_reports(self, readable: int) -> None:
        """Reads the reports of one process until it ends. Logs the start when the process takes
        work, so that a start that fails prints nothing but its error."""
        self._problem, self._reported_at = "starting", time.monotonic()
        is_logged = False
        reader = asyncio.StreamReader()
        with os.fdopen(readable, "rb", buffering=0) as pipe:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), pipe
            )
            try:
                async for line in reader:
                    report = json.loads(line)
                    self._problem, self._reported_at = report["problem"], time.monotonic()
                    if report.get("recycle") is not None:
                        self.worn_out_because = report["recycle"]
                        self.is_worn_out.set()
                    if self._problem is None and not is_logged:
                        is_logged = True
                        self._log_start()
                        self.has_started.set()
            finally:
                transport.close()

    def _log_start(self) -> None:
        self.working_since = time.monotonic()
        again = " again" if self.has_started.is_set() else ""
        logger.info("worker %s started%s (process %s)", self.name, again, self._process and self._process.pid)


def _ending(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
