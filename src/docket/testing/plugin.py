"""Fixtures for pytest: a docket of its own for every
test, on an engine that is started once per session.

Nothing has to be imported or configured. A fixture of the
same name in a project's own conftest.py takes precedence.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast
from uuid import uuid4

import pytest

from docket.docket import Docket
from docket.testing.clock import Clock
from docket.worker import Worker

async_fixture: Callable[[Any], Any]
if importlib.util.find_spec("pytest_asyncio") is not None:
    # Its own decorator, since in its strict mode it leaves other async fixtures alone.
    async_fixture = cast(Callable[[Any], Any], importlib.import_module("pytest_asyncio").fixture)
else:
    async_fixture = cast(Callable[[Any], Any], pytest.fixture)


@pytest.fixture
def docket_url() -> str:
    """Where the test's docket is: a `memory://` name that
    no other test has. Override it to use another server."""
    return f"memory://test-{uuid4().hex}"


@async_fixture
async def docket(docket_url: str) -> AsyncIterator[Docket]:
    """An open docket with nothing on it."""
    async with Docket("test", docket_url) as opened:
        yield opened
        if docket_url.startswith("memory://"):
            # The engine lives as long as the session: what
            # a test leaves there is of no use to anybody.
            await opened.server.client.flushdb()


@async_fixture
async def worker(docket: Docket) -> AsyncIterator[Worker]:
    """A worker on that docket. It does nothing until it is told to:
    `await worker.run_until_finished()`."""
    async with Worker(docket, name="test-worker") as opened:
        yield opened


@pytest.fixture
def clock(docket: Docket, worker: Worker) -> Iterator[Clock]:
    """The time of that docket, which stands still;
    `await clock.advance(…)` lets it pass, with the worker at work."""
    with Clock(docket, worker) as held:
        yield held
