"""A docket of its own for every test."""

from collections.abc import AsyncGenerator
from uuid import uuid4

import pytest

from docket import Docket


@pytest.fixture
async def docket() -> AsyncGenerator[Docket]:
    name = f"drop-in-{uuid4().hex}"
    async with Docket(name=name, url=f"memory://{name}") as docket:
        yield docket
