"""A sync docket for each test, and workers in threads of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from docket.sync import Docket
from docket.testing.servers import ServerProcess

from .tasks import TASKS
from .workers import working


@pytest.fixture
def docket(name: str, url: str) -> Iterator[Docket]:
    """A sync docket with nothing on it. It opens when the test uses it."""
    docket = Docket(name=name, url=url)
    for task in TASKS:
        docket.register(task)
    yield docket
    docket.close()


@pytest.fixture
def worker(name: str, url: str) -> Iterator[None]:
    """A worker for the docket, in another thread."""
    with working(name, url):
        yield


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """A server that the test may stop, and that other processes reach, too."""
    with ServerProcess() as server:
        yield server
