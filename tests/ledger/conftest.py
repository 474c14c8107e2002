"""A ledger on an empty database of a real server: the
embedded Valkey, and Redis where it is installed."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from docket.ledger import Ledger
from docket.storage.server import Server

from .ledger_client import LedgerClient, blocking_client, new_ledger

SECONDS = 90.0
_numbers = itertools.count()


class RedisServer:
    """A redis-server of this test process, on a socket in a folder of its own."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.socket = folder / "redis.sock"
        self._log = folder / "redis.log"
        self._process = subprocess.Popen(
            [
                binary,
                *("--port", "0", "--unixsocket", str(self.socket), "--dir", str(folder)),
                *("--save", "", "--appendonly", "no", "--databases", "10000", "--logfile", str(self._log)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + SECONDS
        with redis.Redis(unix_socket_path=str(self.socket)) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError:
                    assert self._process.poll() is None, f"redis-server ended: {self._log.read_text()[-2000:]}"
                    assert time.monotonic() < deadline, "redis-server does not answer"
                    time.sleep(0.01)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(SECONDS)


@pytest.fixture(scope="session")
def redis_socket() -> Iterator[Path | None]:
    """The socket of a redis-server, one for each test process; None where there is none to run."""
    binary = shutil.which("redis-server")
    if binary is None:
        yield None
        return
    # Not pytest's own folder: a socket's name may not be longer than about a hundred bytes.
    folder = Path(tempfile.mkdtemp(prefix="ledger-", dir="/tmp"))
    server = RedisServer(binary, folder)
    try:
        server.wait_until_ready()
        yield server.socket
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["valkey", "redis"])
def new_url(request: pytest.FixtureRequest, redis_socket: Path | None) -> Callable[[], str]:
    """Makes URLs, each of an empty database of its own."""
    if request.param == "valkey":
        return lambda: f"memory://ledger-{next(_numbers)}"
    if redis_socket is None:
        pytest.skip("no redis-server on this machine")
    # Database 0 is left alone, so that nothing passes by relying on the default.
    return lambda: f"unix://{redis_socket}?db={1 + next(_numbers) % 9999}"


@pytest.fixture
async def server(new_url: Callable[[], str]) -> AsyncIterator[Server]:
    async with Server(new_url()) as server:
        await server.client.flushdb()
        yield server


@pytest.fixture
def ledger(server: Server) -> Ledger:
    return new_ledger(server)


@pytest.fixture
def blocking(server: Server) -> Iterator[Any]:
    """A blocking client, as the thread that keeps the lease has one."""
    client = blocking_client(server)
    yield client
    client.close()


@pytest.fixture
def ledger_client(ledger: Ledger, blocking: Any) -> LedgerClient:
    return LedgerClient(ledger, blocking)
