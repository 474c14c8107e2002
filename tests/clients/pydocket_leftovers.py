"""What the real pydocket 0.27 leaves on a server is taken over. `make test-clients` runs it."""

import os
import subprocess
import textwrap
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from docket import Docket, ExecutionState
from tests.running import run_everything

PROGRAM = """
    import asyncio, os, sys
    from datetime import UTC, datetime, timedelta
    from docket import Docket, Worker

    name, url = sys.argv[1:]

    class Point:
        def __init__(self, x):
            self.x = x

    async def note(*args, **kwargs): ...

    async def dawdle(*args):
        os._exit(0)  # with the task in hand

    async def main():
        async with Docket(name=name, url=url) as docket:
            docket.register(note)
            docket.register(dawdle, names=["note_later"])
            await docket.add("note_later", key="begun")("begun")
            await docket.add(note, key="later", when=datetime.now(UTC) + timedelta(hours=1))("later", number=5)
            await docket.strike(note, "number", "==", 7)
            async with Worker(docket, name="doomed") as worker:
                run = asyncio.ensure_future(worker.run_forever())
                await asyncio.sleep(0)
                await run

    async def leave_ready():
        async with Docket(name=name, url=url) as docket:
            docket.register(note)
            await docket.add(note, key="ready")("ready", {"a": [1, 2]}, "x" * 10000)
            await docket.add(note, key="own-class")(Point(3))

    asyncio.run(leave_ready() if os.environ.get("READY") else main())
"""


@pytest.fixture
def url(server: str) -> str:
    return server


def leave(name: str, url: str, **environment: str) -> None:
    command = [os.environ["PYDOCKET_PYTHON"], "-c", textwrap.dedent(PROGRAM), name, url]
    subprocess.run(command, check=True, timeout=120, env=os.environ | environment)


async def test_tasks_of_the_real_pydocket_are_taken_over(name: str, url: str) -> None:
    seen: dict[str, Any] = {}

    async def note(what: Any, *args: Any, **kwargs: Any) -> None:
        seen[what if isinstance(what, str) else type(what).__name__] = (args, kwargs, getattr(what, "x", None))

    leave(name, url)
    leave(name, url, READY="1")
    async with Docket(name=name, url=url) as docket:
        docket.register(note, names=["note", "note_later"])
        assert (await docket.ledger.foreign.count()).total >= 3

        imported = await docket.ledger.foreign.take_over(docket.payloads)
        assert (imported.scheduled, imported.queued, imported.unreadable) == (1, 3, [])
        assert imported.strikes == 1
        assert (await docket.ledger.foreign.count()).total == 0

        later = await docket.get_execution("later")
        assert later is not None
        assert (later.state, later.args, later.kwargs) == (ExecutionState.SCHEDULED, ("later",), {"number": 5})
        assert timedelta(minutes=50) < later.when - datetime.now(UTC) < timedelta(hours=1)
        await docket.cancel("later")
        await run_everything(docket)

    assert seen["begun"] == ((), {}, None)
    assert seen["ready"] == (({"a": [1, 2]}, "x" * 10000), {}, None)
    assert seen["Point"] == ((), {}, 3)
