"""Worker processes, their logs and their signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import docket
from tests.waiting import SECONDS, eventually
from tests.warm_interpreter import Running, start_module

from .reports import VARIABLE

ROOT = Path(__file__).parents[2]
# Short enough for a test, long enough for a busy machine.
LEASE = 2.0


def environment(reports_url: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(docket.__file__).parents[1]), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, VARIABLE: reports_url, "PYTHONUNBUFFERED": "1"}


class Process:
    """A process of one test, with its output in a file."""

    def __init__(self, arguments: Sequence[str], log: Path, reports_url: str) -> None:
        self.log = log
        self._output: IO[bytes] = log.open("wb")
        self._process = self._start(arguments, environment(reports_url))
        self.pid = self._process.pid

    def _start(self, arguments: Sequence[str], environment: dict[str, str]) -> Running:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def pause(self) -> None:
        self.send(signal.SIGSTOP)

    def wake(self) -> None:
        self.send(signal.SIGCONT)

    async def ended(self, seconds: float = SECONDS) -> int:
        """The exit code, once it has ended by itself."""
        await eventually(
            lambda: self.exit_code is not None,
            f"process {self.pid} has ended",
            seconds,
            seen=lambda: self.output[-3000:],
        )
        assert self.exit_code is not None
        return self.exit_code

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def clean_up(self) -> None:
        if self.exit_code is None:
            self.wake()
            self.kill()
        self._process.wait(SECONDS)
        self._output.close()


class WorkerProcess(Process):
    """`Worker.run` in a process of its own."""

    def __init__(
        self,
        log: Path,
        reports_url: str,
        *,
        docket_name: str,
        url: str,
        name: str,
        tasks: Sequence[str],
        concurrency: int,
        lease: float,
        grace: float,
        clock_seconds: float,
        workers: int,
    ) -> None:
        self.name = name
        settings = {
            "docket": docket_name,
            "url": url,
            "name": name,
            "tasks": [f"tests.faults.tasks:{collection}" for collection in tasks],
            "concurrency": concurrency,
            "lease": lease,
            "grace": grace,
            "clock_seconds": clock_seconds,
            "workers": workers,
        }
        self._has_wrong_clock = clock_seconds != 0
        super().__init__(["-m", "tests.faults.program", json.dumps(settings)], log, reports_url)

    def _start(self, arguments: Sequence[str], environment: dict[str, str]) -> Running:
        # The clock is set before docket is imported.
        if self._has_wrong_clock:
            return super()._start(arguments, environment)
        return start_module(arguments[1], arguments[2:], cwd=ROOT, env=environment, output=self._output)
