"""`docket` as a process of its own, with its output in a file or on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

import docket
from tests.waiting import SECONDS, eventually_blocking
from tests.warm_interpreter import start_module


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "docket", *arguments]


def surroundings(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that finds the same docket, wherever it runs."""
    source = str(Path(docket.__file__).parents[1])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **(more or {})}


_STEERING = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|[=>78])")


class Process:
    """A running command. Its output goes to a file, as in a pipe."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.arguments = arguments
        self.log = log
        with log.open("wb") as output:
            self._process = start_module("docket", arguments, cwd=folder, env=surroundings(environment), output=output)
        self.pid = self._process.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def says(self, text: str, seconds: float = SECONDS) -> None:
        """Waits until the output has this text."""

        def said() -> bool:
            if text in self.output:
                return True
            assert self.exit_code is None, f"ended with {self.exit_code} and never said {text!r}:\n{self.output}"
            return False

        eventually_blocking(said, f"{text!r} in the output", seconds, seen=lambda: self.output)

    def ends(self, seconds: float = SECONDS) -> int:
        return self._process.wait(seconds)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def children(self) -> list[psutil.Process]:
        """The worker processes of a supervisor, oldest first."""
        with contextlib.suppress(psutil.NoSuchProcess):
            found = [child for child in psutil.Process(self.pid).children() if "docket" in child.cmdline()]
            return sorted(found, key=lambda child: child.create_time())
        return []

    def clean_up(self) -> None:
        family = [self._process.pid] if self.exit_code is None else []
        with contextlib.suppress(psutil.NoSuchProcess):
            family += [child.pid for child in psutil.Process(self.pid).children(recursive=True)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(SECONDS)


class Terminal:
    """A running command on a terminal of its own."""

    def __init__(self, *arguments: str, rows: int = 30, columns: int = 120) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self._ours, self._theirs = ours, theirs
        self._seen = b""
        self._process = subprocess.Popen(
            program(*arguments),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
            env=surroundings({"COLUMNS": str(columns), "LINES": str(rows)}),
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 65536):
                self._seen += data

    @property
    def output(self) -> str:
        return self._seen.decode(errors="replace")

    @property
    def text(self) -> str:
        """What was written, without colours and cursor movements."""
        return _STEERING.sub("", self.output)

    @property
    def modes(self) -> list[object]:
        """How the terminal is set now; [3] has the flags for line editing and echo."""
        return termios.tcgetattr(self._theirs)

    def shows(self, text: str, seconds: float = SECONDS) -> None:
        def shown() -> bool:
            if text in self.text:
                return True
            ended = self._process.poll()
            assert ended is None, f"ended with {ended} and never showed {text!r}:\n{self.output}"
            return False

        eventually_blocking(shown, f"{text!r} on the screen", seconds, seen=lambda: self.output[-2000:])

    def types(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ends(self, seconds: float = SECONDS) -> int:
        return self._process.wait(seconds)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(SECONDS)
        os.close(self._theirs)
        self._reader.join(SECONDS)
        os.close(self._ours)


def _take_terminal() -> None:
    """Makes the terminal the controlling one, so that Ctrl-C typed there is a signal here."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
