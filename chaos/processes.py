"""The processes of a chaos run: started, watched, restarted when they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import docket

from .histories import SUFFIX, History
from .proxy import Proxy
from .settings import Settings

ROOT = Path(__file__).resolve().parents[1]
POLL_SECONDS = 0.05
RESTART_SECONDS = 0.2

MakeSettings = Callable[[str, Proxy | None], Settings]


class Place:
    """A place for one process after the other, each behind the same proxy. The names of its
    processes begin with the name of the place."""

    def __init__(
        self, name: str, program: str, proxy: Proxy | None, make_settings: MakeSettings, history: History
    ) -> None:
        self.name = name
        self._proxy = proxy
        # Set while a fault has this place for itself.
        self.is_harmed = False
        self._program = program
        self._make_settings = make_settings
        self._history = history
        self._count = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._stays_down = False
        self._folder: Path | None = None
        # The last process that was ready.
        self._ready = ""

    @property
    def proxy(self) -> Proxy:
        assert self._proxy is not None, "there is no proxy before these servers"
        return self._proxy

    @property
    def process_name(self) -> str:
        return f"{self.name}-{self._count}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def is_ready(self) -> bool:
        """Whether the process has said in its history that it works."""
        if self.pid is None or self._folder is None:
            return False
        if self._ready != self.process_name:
            file = self._folder / f"{self.process_name}{SUFFIX}"
            if file.exists() and b',"ready",' in file.read_bytes():
                self._ready = self.process_name
        return self._ready == self.process_name

    def start(self) -> None:
        self._count += 1
        settings = self._make_settings(self.process_name, self._proxy)
        self._folder = settings.path
        # The same docket as in this process, wherever it was imported from.
        path = os.pathsep.join([str(Path(docket.__file__).parents[1]), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        with (settings.path / f"{self.process_name}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._program, settings.to_json()],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._history.write("started", process=self.process_name, clock=settings.clock_seconds)

    def send(self, number: signal.Signals) -> bool:
        """False if the process has ended."""
        pid = self.pid
        if pid is None:
            return False
        os.kill(pid, number)
        return True

    async def keep_up(self) -> None:
        """Starts the process again whenever it ends, until cancelled or told to stay down."""
        while True:
            assert self._process is not None
            while (code := self._process.poll()) is None:
                await asyncio.sleep(POLL_SECONDS)
            self._history.write("exited", process=self.process_name, code=code)
            if self._stays_down:
                return
            await asyncio.sleep(RESTART_SECONDS)
            self.start()

    def stop(self) -> None:
        """Asks the process to end, and does not start it again."""
        self._stays_down = True
        self._history.write("stopped", process=self.process_name)
        self.send(signal.SIGTERM)

    def clean_up(self) -> None:
        self._stays_down = True
        if self.send(signal.SIGCONT):
            self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
