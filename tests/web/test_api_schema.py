"""The API keeps the promises of its OpenAPI document: schemathesis makes up requests, good and bad
ones, and compares the answers."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import httpx
import pytest
from starlette.applications import Starlette

from docket import Docket, Logged
from docket.web import app
from docket.web.actions import ACTIONS
from docket.web.api.openapi import describe
from docket.web.api.reads import READS
from docket.web.api.routes import Dockets

from .conftest import SAME_ORIGIN
from .served import served


async def ship(order: Annotated[str, Logged], weight: float = 1.0) -> None:
    pass


@asynccontextmanager
async def dashboard() -> AsyncGenerator[Starlette]:
    name = f"schema-{uuid4().hex}"
    async with Docket("shop", f"memory://{name}", codec="json") as docket:
        docket.register(ship)
        for number in range(5):
            await docket.add(ship, docket.now() + timedelta(hours=1), key=f"order-{number}")(f"#{number}")
        yield app(docket, guard=None)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(dashboard) as address:
        yield f"{address}/api/v1"


# How a request that the document does not allow is refused.
CONFIGURATION = """
[checks.negative_data_rejection]
expected-statuses = [400, 404, 405, 406, 409, 413, 415]
"""


@pytest.mark.slow
def test_every_answer_is_as_the_document_says(address: str, tmp_path: Path) -> None:
    """In a process of its own: a test process that imports schemathesis starts a second later."""
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION)
    header = [f"{name}:{value}" for name, value in SAME_ORIGIN.items()]
    run = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", configuration, "--no-color"),
            *("run", f"{address}/openapi.json", "--url", address, "--header", *header, "--warnings", "off"),
            # Requests for each operation, besides those for each value at the edge of its range.
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "5", "--generation-deterministic"),
            # A busy machine is not a failure.
            *("--suppress-health-check", "all"),
            # Valid JSON may still be refused: the function in it is not there.
            *("--exclude-checks", "positive_data_acceptance"),
            # A stream of events does not end.
            *("--exclude-path-regex", "/events$"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_document_is_served(address: str) -> None:
    found = httpx.get(f"{address}/openapi.json").json()
    assert found["openapi"] == "3.1.0"
    assert found["paths"] == describe(["shop"], READS, ACTIONS.values(), Dockets)["paths"]
    assert found["servers"] == [{"url": "/api/v1"}]
