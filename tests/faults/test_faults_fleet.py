"""Fleets that change, and one of them that is lost among thousands (rows A10, A11)."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from docket import Docket
from docket.ledger.fleet import worker_name
from tests.waiting import WAIT_LIMIT, eventually

from . import tasks
from .conftest import Harness
from .counted_tasks import CountedTasks, working
from .processes import LEASE, WorkerProcess


async def test_workers_that_come_and_go_leave_nothing_behind(harness: Harness) -> None:
    docket = await harness.docket(lease=1.0)
    counted = CountedTasks(docket)
    for generation in range(10):
        async with AsyncExitStack() as stack:
            for i in range(10):
                await stack.enter_async_context(working(await harness.worker(docket, name=f"worker-{generation}-{i}")))
            await counted.works(f"generation-{generation}")
    # And some that had no time to say goodbye.
    killed = [harness.worker_process(lease=1.0) for _ in range(2)]
    await harness.at_work(docket, *killed)
    for process in killed:
        process.kill()
    async with working(await harness.worker(docket, name="the last")):
        await counted.works("after")
        await eventually(lambda: has_only(docket, {"the last"}), "the dead workers are no longer registered")
        assert await consumers(docket) <= 1
        await counted.works("afterwards")

    assert await docket.workers() == []
    assert await docket.task_workers("short") == []
    assert await consumers(docket) == 0
    async with docket.redis() as redis:
        names: Any = await redis.keys("*")
        for_ever = [name.decode() for name in names if await redis.ttl(name) == -1]
        left = {key.removeprefix(docket.key("")) for key in for_ever}
        families = {name.partition(":=")[0] for name in left}
        # What was lost, so that nobody comes back under its id; trimmed after a day.
        assert await redis.zcard(docket.key("lost")) <= 103
    assert families <= {"stream", "front", "epoch", "lost", "sweep-cursor", "max-losses", "secret"}, families


async def has_only(docket: Docket, names: set[str]) -> bool:
    return {info.name for info in await docket.workers()} == names


async def consumers(docket: Docket) -> int:
    async with docket.redis() as redis:
        found = [
            await redis.xinfo_consumers(name, "docket-workers") for name in (docket.stream_key, docket.key("front"))
        ]
    return max(len(of_stream) for of_stream in found)


async def test_an_orphan_behind_thousands_of_live_deliveries_is_found(harness: Harness) -> None:
    docket = await harness.docket()
    held, orphaned = CountedTasks(docket), "orphan"
    async with working(await harness.worker(docket, concurrency=5000)):
        await docket.add_many(docket.call(held.long, key=f"held-{i}")() for i in range(5000))
        await eventually(lambda: len(held.starts) == 5000, "five thousand are held")
        victim = harness.worker_process(concurrency=1)
        await docket.add(tasks.hold, key=orphaned)("go")
        await harness.started(orphaned)
        # One slot becomes free for it, and no more.
        await docket.cancel("held-4999")
        victim.kill()
        killed_at = time.monotonic()
        harness.reports.release("go")
        execution = await docket.get_execution(orphaned)
        assert execution is not None
        while not execution.state.finished:
            await execution.sync()
            await asyncio.sleep(0.05)
            assert time.monotonic() - killed_at < LEASE + 60, "it is found within about the lease"
        assert len(held.finished) == 0, "all the others still run"
        held.release.set()
        await eventually(lambda: len(held.finished) == 4999, "and end")
    assert max(held.starts.values()) == 1


@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_scheduled_tasks_run_long_before_the_lease_of_the_worker_that_staged_ends(
    harness: Harness, how: str
) -> None:
    docket = await harness.docket(lease=3600.0)
    workers = [harness.worker_process(lease=3600.0) for _ in range(3)]
    await harness.at_work(docket, *workers)
    leader = await staging_worker(docket, workers)
    leader.kill() if how == "killed" else leader.pause()

    begin = time.time() + 1.0
    for n in range(5):
        await docket.add(tasks.nap, datetime.fromtimestamp(begin + n, UTC), key=f"task-{n}")(0)
    for n in range(5):
        await harness.started(f"task-{n}")
    offset = time.time() - time.monotonic()
    late = [harness.reports.read("start", f"task-{n}")[0].at + offset - (begin + n) for n in range(5)]
    assert all(seconds >= -0.01 for seconds in late), late
    assert await staging_worker(docket, workers) is not leader


async def staging_worker(docket: Docket, workers: list[WorkerProcess]) -> WorkerProcess:
    async with docket.redis() as redis:
        id: Any = await redis.hget(docket.key("fleet"), "leader")
    (leader,) = [worker for worker in workers if worker.name == worker_name(id.decode())]
    return leader


async def test_a_worker_that_drains_leaves_staging_to_another(harness: Harness) -> None:
    docket = await harness.docket(lease=3600.0)
    counted = CountedTasks(docket)
    first, second = (
        await harness.worker(docket, name="first", concurrency=1),
        await harness.worker(docket, name="second"),
    )
    draining = asyncio.create_task(first.run_forever())
    await eventually(lambda: first.is_working and first.staff.duties.leads, "the first leads")
    held = await counted.hold("held")
    async with working(second):
        await eventually(lambda: second.is_working, "the second works, too")
        first.stop()
        await eventually(lambda: second.staff.duties.leads, "the other leads")
        assert not draining.done()
        when = datetime.now(UTC) + timedelta(seconds=0.5)
        scheduled = await docket.add(counted.short, when, key="scheduled")()
        await scheduled.get_result(timeout=WAIT_LIMIT)
        counted.release.set()
        await held.get_result(timeout=WAIT_LIMIT)
        await draining
