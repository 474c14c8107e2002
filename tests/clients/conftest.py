"""A docket of its own for every test, on the embedded engine and on a server."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from docket.testing.servers import Standalone


@pytest.fixture
def name() -> str:
    return f"client-{uuid4().hex}"


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a real server."""
    with Standalone() as group:
        yield group.url


@pytest.fixture(params=["redis", "memory"])
def url(request: pytest.FixtureRequest, name: str) -> str:
    return f"memory://{name}" if request.param == "memory" else str(request.getfixturevalue("server"))
