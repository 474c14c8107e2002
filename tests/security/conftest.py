"""A trap for every test, and a client that can only publish."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from docket import Docket

from .traps import Trap


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    trap = Trap(tmp_path / "sprang")
    assert not trap.sprang
    return trap


@pytest.fixture
async def publisher(docket: Docket) -> AsyncIterator[Any]:
    """A client whose user may publish on every channel, and do nothing else."""
    server = docket.server.client
    await server.acl_setuser(
        "publisher", enabled=True, reset=True, nopass=True, channels=["*"], commands=["+publish", "+select"]
    )
    client = server.__class__(
        connection_pool=server.connection_pool.__class__(
            connection_class=server.connection_pool.connection_class,
            **{**server.connection_pool.connection_kwargs, "username": "publisher", "password": "any"},
        )
    )
    yield client
    await client.aclose(close_connection_pool=True)
