"""A server of each test process's own, on a socket and on
a port; and nothing may be complained about afterwards."""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from docket.storage.connection import Connection
from docket.storage.embedded import find_server

from .scripted_server import ScriptedServer, client_of

SECONDS = 90.0
HASTE = 0.5


@dataclass
class RealServer:
    """A server that tests may ask for anything that leaves it as it was."""

    process: subprocess.Popen[bytes]
    socket: Path
    port: int

    def url(self, kind: str) -> str:
        return f"unix://{self.socket}" if kind == "unix" else f"redis://127.0.0.1:{self.port}"

    def client(self) -> Any:
        return redis.Redis(unix_socket_path=str(self.socket))

    def has_started(self) -> bool:
        """False if it ended: then its port was taken."""
        deadline = time.monotonic() + SECONDS
        with self.client() as client:
            while self.process.poll() is None:
                try:
                    return bool(client.ping())
                except redis.RedisError:
                    assert time.monotonic() < deadline, "the server does not answer"
                    time.sleep(0.01)
        return False


def start(binary: str | Path, folder: Path) -> RealServer:
    for _ in range(20):
        # Below the range that the kernel gives out by itself.
        port = random.randrange(12_000, 32_000)
        place = ["--port", str(port), "--bind", "127.0.0.1", "--unixsocket", str(folder / "s"), "--dir", str(folder)]
        process = subprocess.Popen(
            [str(binary), *place, "--save", ""],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        server = RealServer(process, folder / "s", port)
        if server.has_started():
            return server
    raise AssertionError(f"{binary} does not start")


def running(binary: str | Path) -> Iterator[RealServer]:
    # Not pytest's own folder: a socket's name may not be longer than about a hundred bytes.
    folder = Path(tempfile.mkdtemp(prefix="storage-", dir="/tmp"))
    server = start(binary, folder)
    yield server
    server.process.kill()
    server.process.wait(SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def real() -> Iterator[RealServer]:
    yield from running(find_server())


@pytest.fixture(scope="session")
def real_redis() -> Iterator[RealServer | None]:
    binary = shutil.which("redis-server")
    if binary is None:
        yield None
    else:
        yield from running(binary)


@pytest.fixture(params=["valkey", "redis"])
def any_client(request: pytest.FixtureRequest, real: RealServer, real_redis: RealServer | None) -> Iterator[Any]:
    server = real if request.param == "valkey" else real_redis
    if server is None:
        pytest.skip("no redis-server on this machine")
    with server.client() as client:
        yield client


@pytest.fixture
def blocking(real: RealServer) -> Iterator[Any]:
    """A client outside the event loop, of a server with no keys."""
    with real.client() as client:
        client.flushall()
        yield client


@pytest.fixture(params=["unix", "tcp"])
async def line(request: pytest.FixtureRequest, real: RealServer) -> AsyncIterator[Connection]:
    line = Connection(client_of(real.url(request.param)), SECONDS)
    yield line
    await line.aclose()


@pytest.fixture(params=["unix", "tcp"])
async def hasty_line(request: pytest.FixtureRequest, real: RealServer) -> AsyncIterator[Connection]:
    """One that waits for no answer longer than HASTE."""
    line = Connection(client_of(real.url(request.param)), HASTE)
    yield line
    await line.aclose()


@pytest.fixture
async def scripted_server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as scripted_server:
        yield scripted_server


@pytest.fixture
async def no_complaints() -> AsyncIterator[None]:
    """Of exceptions that nobody retrieved, tasks that
    were forgotten, connections that were not closed."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    yield
    # A transport that was told to close does so in the next turn.
    await asyncio.sleep(0)
    gc.collect()
    assert complaints == []
