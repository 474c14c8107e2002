"""Servers, and ways to run the command: in this process where
that is enough, as a process of its own where it is not."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from docket.cli import app
from docket.storage.embedded import memory_engine
from docket.testing.servers import ServerProcess

from .processes import Process

SECONDS = 90.0
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DOCKET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


class Command:
    """`docket …` in this process."""

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)


@pytest.fixture
def docket_command() -> Command:
    return Command()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder to work in, with a short name: a socket may be put there."""
    folder = Path(tempfile.mkdtemp(prefix="cli-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def processes(folder: Path) -> Iterator[list[Process]]:
    """The processes a test started; none outlives it, and their output is shown if it fails."""
    started: list[Process] = []
    yield started
    for process in started:
        process.clean_up()
        print(f"--- {process.arguments} (exit {process.exit_code})\n{process.output}")


class Start:
    """Starts `docket …` as a process of its own, in the test's folder."""

    def __init__(self, folder: Path, processes: list[Process]) -> None:
        self._folder = folder
        self._processes = processes

    def __call__(self, *arguments: str, **environment: str) -> Process:
        log = self._folder / f"output-{len(self._processes)}"
        process = Process(arguments, self._folder, log, environment)
        self._processes.append(process)
        return process


@pytest.fixture
def start(folder: Path, processes: list[Process]) -> Start:
    return Start(folder, processes)


def unused_port() -> int:
    """A port that is free, and so is the next one. Both are below those that the system gives to
    outgoing connections: one of these could take the port before the program does."""
    while True:
        port = random.randrange(20_000, 32_000, 2)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("0.0.0.0", port))
                second.bind(("0.0.0.0", port + 1))
            except OSError:
                continue
            return port


@pytest.fixture
def url() -> str:
    """An empty database on the embedded engine, for other processes too."""
    address = memory_engine(f"cli-{next(_numbers)}")
    return f"unix://{address.socket_path}?db={address.database}"


@pytest.fixture(params=["embedded", "redis"])
def any_url(request: pytest.FixtureRequest, folder: Path) -> str:
    """The same on an embedded engine of its own, and on Redis over TCP."""
    if request.param == "embedded":
        return f"embedded://{folder}/engine"
    redis_server: ServerProcess = request.getfixturevalue("redis_server")
    return f"redis://localhost:{redis_server.port}/{1 + next(_numbers) % 999}"


@pytest.fixture
def port() -> int:
    return unused_port()


SHOP = """
import asyncio
from datetime import timedelta
from typing import Annotated

from docket import Logged, Progress, Retry


async def ship(order: Annotated[str, Logged], weight: float = 1.5, retry: Retry = Retry(attempts=2)) -> str:
    return order


async def pack(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def print_pages(pages: int, progress: Progress = Progress()) -> None:
    await progress.set_total(pages)
    for page in range(pages):
        await progress.increment()
        await progress.set_message(f"page {page + 1}")


async def unknown(*args, **kwargs) -> None:
    print("fallback was called", flush=True)


tasks = [ship, pack, print_pages]
"""


@pytest.fixture
def shop(folder: Path) -> str:
    """The path of a task collection, as a user in that folder would write it."""
    (folder / "shop.py").write_text(SHOP)
    return "shop:tasks"
