"""A docket of its own for every test."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from uuid import uuid4

import pytest

from docket import Docket, Worker


@pytest.fixture
def name() -> str:
    return f"acceptance-{uuid4().hex}"


@pytest.fixture
def url(name: str) -> str:
    return f"memory://{name}"


@pytest.fixture
async def docket(name: str, url: str) -> AsyncGenerator[Docket]:
    async with Docket(name=name, url=url) as docket:
        yield docket


@pytest.fixture
async def worker(docket: Docket) -> AsyncGenerator[Worker]:
    async with Worker(
        docket,
        minimum_check_interval=timedelta(milliseconds=5),
        scheduling_resolution=timedelta(milliseconds=5),
    ) as worker:
        yield worker
