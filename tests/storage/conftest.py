"""A server of each test process's own, on a socket and on
a port; and nothing may be complained about afterwards."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from docket.storage.client.connection import Connection
from docket.testing.servers import ServerProcess

from .scripted_server import ScriptedServer, client_of

SECONDS = 90.0
HASTE = 0.5


class RealServer(ServerProcess):
    """A server that tests may ask for anything that leaves it as it was."""

    def url_of(self, kind: str) -> str:
        return f"unix://{self.socket}" if kind == "unix" else f"redis://127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def real() -> Iterator[RealServer]:
    with RealServer(tcp=True) as server:
        yield server


@pytest.fixture(params=["valkey", "redis"])
def any_client(request: pytest.FixtureRequest) -> Iterator[Any]:
    server: ServerProcess = request.getfixturevalue("real" if request.param == "valkey" else "redis_server")
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
    line = Connection(client_of(real.url_of(request.param)), SECONDS)
    yield line
    await line.aclose()


@pytest.fixture(params=["unix", "tcp"])
async def hasty_line(request: pytest.FixtureRequest, real: RealServer) -> AsyncIterator[Connection]:
    """One that waits for no answer longer than HASTE."""
    line = Connection(client_of(real.url_of(request.param)), HASTE)
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
