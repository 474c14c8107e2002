"""A docket of its own for every test, on the embedded engine and on a server."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from docket.storage.embedded import find_server


@pytest.fixture
def name() -> str:
    return f"client-{uuid4().hex}"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder: Path = tmp_path_factory.mktemp("server")
    process = subprocess.Popen(
        [find_server(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.05)
    yield f"redis://127.0.0.1:{port}/0"
    process.terminate()
    process.wait(30)


@pytest.fixture(params=["redis", "memory"])
def url(request: pytest.FixtureRequest, name: str) -> str:
    return f"memory://{name}" if request.param == "memory" else str(request.getfixturevalue("server"))
