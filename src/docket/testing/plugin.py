"""Fixtures for pytest: each test gets its own docket, on a server that starts once per session.

The fixtures need no import and no configuration. A fixture of the same name in a project's own
conftest.py takes precedence.
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
    # In strict mode, pytest-asyncio handles only async fixtures made with its own decorator.
    async_fixture = cast(Callable[[Any], Any], importlib.import_module("pytest_asyncio").fixture)
else:
    async_fixture = cast(Callable[[Any], Any], pytest.fixture)


@pytest.fixture
def docket_url() -> str:
    """The URL of the test's docket: a `memory://` name that no other test uses. Override this
    fixture to use another server."""
    return f"memory://test-{uuid4().hex}"


@async_fixture
async def docket(docket_url: str) -> AsyncIterator[Docket]:
    """An open, empty docket."""
    async with Docket("test", docket_url) as opened:
        yield opened
        if docket_url.startswith("memory://"):
            # The server runs until the end of the session, so delete the data of this test.
            await opened.server.client.flushdb()


@async_fixture
async def worker(docket: Docket) -> AsyncIterator[Worker]:
    """A worker on that docket. It runs no tasks until the test calls, for example,
    `await worker.run_until_finished()`."""
    async with Worker(docket, name="test-worker") as opened:
        yield opened


@pytest.fixture
def clock(docket: Docket, worker: Worker) -> Iterator[Clock]:
    """The clock of that docket. Time stands still until the test calls `await clock.advance(…)`,
    which also runs the worker."""
    with Clock(docket, worker) as held:
        yield held
