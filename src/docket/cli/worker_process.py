"""One place in a supervisor's row: there is always a worker process in it, or one on its way."""

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
from docket.cli.failures import FAILED, WRONG_USAGE
from docket.cli.worker_options import WorkerOptions

logger: logging.Logger = logging.getLogger("docket.supervisor")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
# A process that lived this long has earned a quick restart.
GOOD_LIFE_SECONDS = 30.0
# Without a report for this long, a process does not count as well.
SILENCE_SECONDS = 5.0
# On a reload a running task may hold up the programmer for this long; then it is handed back.
RELOAD_PATIENCE_SECONDS = 3.0
LAST_WORDS_SECONDS = 0.5


class GaveUp(Exception):
    """The process cannot work, and starting it again would not help."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class WorkerProcess:
    """Starts a worker process, and again when it dies."""

    def __init__(self, options: WorkerOptions, *, patient: bool) -> None:
        self.options = options
        self.name: str = str(options.name)
        self.well_once: asyncio.Event = asyncio.Event()
        self._patient = patient
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._reloading = False
        self._changed = asyncio.Event()
        self._pause = FIRST_PAUSE_SECONDS
        self._problem: str | None = "starting"
        self._heard = time.monotonic()

    def problem(self) -> str | None:
        """Why this process takes no work, or None. Safe to call from any thread."""
        if self._problem is not None:
            return self._problem
        silence = time.monotonic() - self._heard
        return f"no sign of life for {silence:.0f} s" if silence > SILENCE_SECONDS else None

    # What it is told

    def stop(self) -> None:
        """Tells the process to finish; told again, it hands back what it runs."""
        self._stopping = True
        self._changed.set()
        self._signal()

    async def reload(self) -> None:
        """Starts the process anew."""
        self._changed.set()
        if self._process is None or self._process.returncode is not None:
            return
        self._reloading = True
        old = self._process
        self._signal()
        await asyncio.sleep(RELOAD_PATIENCE_SECONDS)
        if old.returncode is None and self._process is old:
            self._signal()

    def _signal(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    # Its life

    async def keep_running(self) -> int:
        """Returns the exit code of the last process, when
        it was told to stop or nothing is left to do."""
        while True:
            began = time.monotonic()
            code = await self._one_life()
            if self._stopping or (self.options.until_finished and code == 0):
                return code
            if self._reloading:
                self._reloading = False
                continue
            if not self._patient and (code == WRONG_USAGE or (code >= 0 and not self.well_once.is_set())):
                raise GaveUp(code or FAILED)
            if time.monotonic() - began >= GOOD_LIFE_SECONDS:
                self._pause = FIRST_PAUSE_SECONDS
            await self._wait_before_next(code)
            if self._stopping:
                return 0

    async def _wait_before_next(self, code: int) -> None:
        self._changed.clear()
        if self._patient and code == WRONG_USAGE:
            logger.warning("worker %s cannot start; waiting for a file to change", self.name)
            await self._changed.wait()
            return
        logger.warning("worker %s ended (%s); starting it again in %.1f s", self.name, _ending(code), self._pause)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    async def _one_life(self) -> int:
        """Runs one process to its end; the exit code, or minus the signal that killed it."""
        readable, writable = os.pipe()
        try:
            self._process = await self._start(writable)
        except OSError as error:
            # Out of memory or of processes: that may pass.
            logger.warning("worker %s cannot be started: %s", self.name, error)
            os.close(readable)
            return FAILED
        finally:
            os.close(writable)
        if self._stopping:
            # The order came while the process was being made.
            self._signal()
        hearing = asyncio.create_task(self._hear(readable))
        try:
            return await self._process.wait()
        finally:
            # Its last words may be under way. The pipe's end need not come: a task may have forked.
            await asyncio.wait([hearing], timeout=LAST_WORDS_SECONDS)
            await cancel_and_wait([hearing], "docket: the process has ended")
            self._problem = "not running"

    async def _start(self, report_to: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command(report_to),
            env={**os.environ, **self.options.environment()},
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[report_to],
            # Ctrl-C in a terminal goes to a whole group; the supervisor passes it on, once.
            process_group=0,
        )

    def _command(self, report_to: int) -> list[str]:
        # With -P a docket.py in the user's folder is not taken
        # for the package; the worker adds the folder itself.
        program = [sys.executable, "-P", "-m", "docket", "worker"]
        return [*program, "--name", self.name, "--processes", "1", "--no-reload", "--report-to", str(report_to)]

    async def _hear(self, readable: int) -> None:
        """Reads the reports of one process until it has ended. Its start is logged when it takes
        work: an error that keeps it from that is the only line."""
        self._problem, self._heard = "starting", time.monotonic()
        is_logged = False
        reader = asyncio.StreamReader()
        with os.fdopen(readable, "rb", buffering=0) as pipe:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), pipe
            )
            try:
                async for line in reader:
                    self._problem, self._heard = json.loads(line)["problem"], time.monotonic()
                    if self._problem is None and not is_logged:
                        is_logged = True
                        self._log_start()
                        self.well_once.set()
            finally:
                transport.close()

    def _log_start(self) -> None:
        again = " again" if self.well_once.is_set() else ""
        logger.info("worker %s started%s (process %s)", self.name, again, self._process and self._process.pid)


def _ending(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
