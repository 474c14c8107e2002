"""Links that carry little: whoever has large values to send or to fetch harms nobody, and gets there in the end."""

from __future__ import annotations

import asyncio

import pytest

from docket.storage import server as storage_server
from docket.worker import settling

from .conftest import Stage
from .proxy import Proxy
from .pulse import MINUTE, working
from .waiting import until


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines in the proportion of small values to small rates, so that the tests take seconds."""
    monkeypatch.setattr(storage_server, "ANSWER_SECONDS", 0.6)
    monkeypatch.setattr(settling, "ANSWER_SECONDS", 0.6, raising=False)
    monkeypatch.setattr("docket.storage.wire.SLOWEST_BYTES_PER_SECOND", 1e9)


async def test_endings_that_are_late_together_are_written_in_smaller_batches(stage: Stage, impatient: None) -> None:
    """Twelve results of 20 kB at 100 kB a second: all of them take more than two seconds, and an answer is due in 0.6."""
    server = stage.server()
    starts: list[int] = []
    released = asyncio.Event()

    async def task(number: int) -> bytes:
        starts.append(number)
        await released.wait()
        return bytes([number]) * 20_000

    async with Proxy(server) as proxy:
        far, near = await stage.docket(url=proxy.url, lease=8), await stage.docket(url=server.url)
        far.register(task)
        near.register(task)
        executions = [await near.add(task)(number) for number in range(12)]
        async with working(await stage.worker(far, concurrency=12)):
            await until(lambda: len(starts) == 12, "they run")
            proxy.bytes_per_second = 100_000
            released.set()
            for number, execution in enumerate(executions):
                assert await execution.get_result(timeout=MINUTE) == bytes([number]) * 20_000
            proxy.bytes_per_second = None
    assert sorted(starts) == list(range(12))
