"""A ledger on an empty database of a real server: the
embedded Valkey, and Redis where it is installed."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from docket.ledger import Ledger
from docket.storage.server import Server
from docket.testing.servers import ServerProcess

from .ledger_client import LedgerClient, blocking_client, new_ledger

_numbers = itertools.count()


@pytest.fixture(params=["valkey", "redis"])
def new_url(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes URLs, each of an empty database of its own."""
    if request.param == "valkey":
        return lambda: f"memory://ledger-{next(_numbers)}"
    redis_server: ServerProcess = request.getfixturevalue("redis_server")
    # Database 0 is left alone, so that nothing passes by relying on the default.
    return lambda: f"unix://{redis_server.socket}?db={1 + next(_numbers) % 9999}"


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
