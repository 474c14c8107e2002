"""A docket of its own for each test of a limit, and looks at what limits keep on the server."""

import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from docket import Docket
from docket.dependencies import AdmissionBlocked, Dependency, current_execution
from docket.testing.servers import ServerGroup
from tests.nodes import keys_like
from tests.waiting import eventually

_databases = itertools.count(5000)


class NotOnTheFirstTry(Dependency[None]):
    """Puts every task off once."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    async def __aenter__(self) -> None:
        execution = current_execution.get()
        if execution.key not in self.seen:
            self.seen.add(execution.key)
            raise AdmissionBlocked(execution, "a test", retry_delay=timedelta(milliseconds=10))


@asynccontextmanager
async def open_docket(**options: Any) -> AsyncGenerator[Docket]:
    name = f"limits-{uuid4().hex[:12]}"
    async with Docket(name=name, url=new_url(name), **options) as docket:
        yield docket


class Chosen:
    """The cluster or the sentinels that the tests run on, or None. conftest.py sets it."""

    group: ServerGroup | None = None


def new_url(name: str) -> str:
    """A database of its own, on the servers that the tests run on."""
    return f"memory://{name}" if Chosen.group is None else Chosen.group.database_url(next(_databases))


async def parked(docket: Docket, count: int) -> None:
    """Waits until so many tasks wait in line."""

    async def are() -> bool:
        return (await docket.ledger.queries.census()).parked == count

    await eventually(are, f"{count} tasks wait in line")


async def assert_nothing_is_left(docket: Docket) -> None:
    """No slot, no line, no task; and whatever else the limits have written has a time to live."""
    async with docket.redis() as redis:
        keys = await keys_like(docket, "*")
        names = {key.decode().removeprefix(f"{docket.prefix}:").partition(":=")[0] for key in keys}
        left = names & {"slots", "waiters", "limits", "parked", "replaced-runs", "tasks", "running", "scheduled"}
        assert not left, f"left behind: {left}"
        for key in keys:
            if any(family in key for family in (b":rate:=", b":rate-waiters:=", b":cooldown:=", b":debounce:=")):
                assert await redis.pttl(key) != -1, f"{key!r} stays for ever"
