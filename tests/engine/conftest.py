"""A harness for each test of the embedded engine: folders
and processes of its own, of which nothing stays."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import docket
from docket.storage.embedded import EngineAddress, FolderEngine, memory
from tests.waiting import SECONDS, eventually_blocking

PRELUDE = """
import os, signal, subprocess, sys, threading, time, types
from pathlib import Path

# The engine alone: importing the rest of docket takes longer than starting a server.
sys.modules["docket"] = types.ModuleType("docket")
sys.modules["docket"].__path__ = [os.environ["SCENE_PACKAGE"]]
from docket.storage.embedded import EngineError, FolderEngine, memory_engine

folder = Path(os.environ["SCENE_FOLDER"])

def say(*words):
    print(*words, flush=True)

def wait():
    sys.stdin.readline()

def connect(address):
    import redis
    return redis.Redis(unix_socket_path=address.socket_path, db=address.database, decode_responses=True)
"""


class Child:
    """A Python process that runs a piece of code, says lines and waits for lines."""

    def __init__(self, code: str, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            bufsize=0,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._heard = b""

    def hear(self) -> str:
        """The next line."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._heard:
                assert selector.select(deadline - time.monotonic()), "the child says nothing"
                more = os.read(self._process.stdout.fileno(), 65536)
                assert more, f"the child ended with {self._process.wait()}"
                self._heard += more
        line, self._heard = self._heard.split(b"\n", 1)
        return line.decode()

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    def send(self, number: int, *, to_group: bool = False) -> None:
        (os.killpg if to_group else os.kill)(self.pid, number)

    def ended(self) -> int:
        return self._process.wait(SECONDS)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@dataclass
class Harness:
    root: Path
    children: list[Child] = field(default_factory=list[Child])
    engines: list[FolderEngine] = field(default_factory=list[FolderEngine])
    clients: list[redis.Redis] = field(default_factory=list[redis.Redis])

    @property
    def folder(self) -> Path:
        """The folder of the folder engine."""
        return self.root / "engine"

    @property
    def temporary(self) -> Path:
        """Where everything in this harness has its temporary files."""
        return self.root / "tmp"

    def engine(self, folder: Path | None = None, **options: Any) -> FolderEngine:
        self.engines.append(FolderEngine(folder or self.folder, **options))
        return self.engines[-1]

    def child(self, code: str) -> Child:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "SCENE_PACKAGE": str(Path(docket.__file__).parent),
            "SCENE_FOLDER": str(self.folder),
        }
        self.children.append(Child(code, environment))
        return self.children[-1]

    def connect(self, address: EngineAddress | str) -> redis.Redis:
        if isinstance(address, str):
            address = EngineAddress(address, 0)
        client = redis.Redis(
            unix_socket_path=address.socket_path,
            db=address.database,
            decode_responses=True,
            retry=Retry(NoBackoff(), 0),
        )
        self.clients.append(client)
        return client

    def processes(self, name: str = "") -> list[psutil.Process]:
        """What runs in this harness's folders, by the name of the program or script."""
        return [process for process, names in self._all_processes() if any(name in word for word in names)]

    def servers(self) -> list[psutil.Process]:
        return self.processes("-server")

    def keepers(self) -> list[psutil.Process]:
        return self.processes("keeper.py")

    def supervisors(self) -> list[psutil.Process]:
        return self.processes("run_keeper.sh")

    def _all_processes(self) -> Iterator[tuple[psutil.Process, list[str]]]:
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if process.cwd().startswith(str(self.root)) and words:
                    yield (
                        process,
                        [words[0].split()[0], *(w for w in words[1:5] if w.endswith((".py", ".sh")))],
                    )
            except psutil.Error:
                continue

    def kill(self, *victims: psutil.Process) -> None:
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        for victim in victims:
            eventually_blocking(lambda victim=victim: not _runs(victim), f"{victim} is dead")

    def clean_up(self) -> None:
        for client in self.clients:
            client.close()
        for child in self.children:
            child.end()
        for engine in self.engines:
            engine.stop()

    def assert_nothing_is_left(self) -> None:
        try:
            eventually_blocking(lambda: not self.processes(), "all processes have ended")
            eventually_blocking(lambda: not list(self.temporary.iterdir()), "all temporary files are gone")
        finally:
            self.kill(*self.processes())


def _runs(process: psutil.Process) -> bool:
    try:
        # The first thread of a killed process may be dead
        # while others still hold its sockets and locks.
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.Error:
        return False


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    # Not pytest's own folder: its long name would turn every socket into the case of the long name.
    harness = Harness(Path(tempfile.mkdtemp(prefix="engine-", dir="/tmp")).resolve())
    harness.temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(harness.temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(harness.temporary))
    monkeypatch.setenv("DOCKET_ENGINE_LINGER", "0.2")
    try:
        yield harness
        harness.clean_up()
        harness.assert_nothing_is_left()
    finally:
        for child in harness.children:
            child.end()
        shutil.rmtree(harness.root, ignore_errors=True)


@pytest.fixture(autouse=True)
def a_process_without_a_memory_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Other tests may have started this process's
    memory engine; these tests are about starting it."""
    fresh = memory._MemoryServers()
    monkeypatch.setattr(memory, "_this_process", fresh)
    yield
    fresh.forget()
