"""A thousand tasks that are out of time at one moment."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import timedelta

from docket import Docket, ExecutionState, Timeout, Worker

from .conftest import commands

COUNT = 1_000


async def test_a_thousand_tasks_that_time_out_at_once_all_fail_once_and_their_worker_goes_on(docket: Docket) -> None:
    started: Counter[int] = Counter()
    all_run = asyncio.Event()

    async def late(number: int, timeout: Timeout = Timeout(timedelta(seconds=20))) -> None:
        started[number] += 1
        if len(started) == COUNT:
            all_run.set()
        await asyncio.Event().wait()

    async def neighbour() -> str:
        return "well"

    docket.register(late)
    docket.register(neighbour)
    executions = [await docket.add(late, key=f"late-{n}")(n) for n in range(COUNT)]
    async with Worker(docket, concurrency=COUNT + 10) as worker:
        working = asyncio.create_task(worker.run_forever())
        await all_run.wait()
        before, began = await commands(docket), time.monotonic()
        await asyncio.gather(*(execution.get_result() for execution in executions), return_exceptions=True)
        spent = await commands(docket) - before
        print(f"\nall over {time.monotonic() - began:.1f} s after the last one began; {spent['publish']} events")
        well = await docket.add(neighbour)()
        assert await well.get_result(timeout=timedelta(minutes=10)) == "well"
        worker.stop()
        await working
    assert set(started.values()) == {1}
    for execution in executions:
        await execution.sync()
        assert execution.state is ExecutionState.FAILED
        assert "Timeout" in (execution.error or "")
