"""Tests of large sizes, which only `make test-large` runs.
They print their figures; none of them compares times."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from docket import Docket
from docket.testing.plugin import docket, docket_url

__all__ = ["docket", "docket_url"]

_FOLDER = f"{Path(__file__).parent}/"
# Connections also greet and ping, whenever it is time; the test itself asks for figures.
_OTHERS = ("info", "ping", "hello", "client", "select", "subscribe", "config", "slowlog")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(_FOLDER):
            item.add_marker(pytest.mark.large)
            item.add_marker(pytest.mark.timeout(7200))


async def commands(docket: Docket) -> Counter[str]:
    """How often the server has run each command, those inside of scripts included."""
    async with docket.redis() as redis:
        found = await redis.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): row["calls"] for name, row in found.items()}
    return Counter({name: count for name, count in calls.items() if not name.startswith(_OTHERS)})
