"""Tasks that take their workers along, and tasks that only happened to be there (row A5)."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from docket import Docket, Execution, ExecutionState, MaxLosses
from docket.errors import WorkerLost
from tests.waiting import eventually

from . import tasks
from .conftest import Harness
from .processes import WorkerProcess

MINUTES = timedelta(minutes=3)
LEASE = 1.0


@asynccontextmanager
async def supervised(harness: Harness, count: int, **options: Any) -> AsyncIterator[list[WorkerProcess]]:
    """So many workers; for each that dies another one is started."""
    fleet = [harness.worker_process(lease=LEASE, **options) for _ in range(count)]

    async def supervise() -> None:
        while True:
            for i, worker in enumerate(fleet):
                if worker.exit_code is not None:
                    fleet[i] = harness.worker_process(lease=LEASE, **options)
            await asyncio.sleep(0.05)

    supervisor = asyncio.create_task(supervise())
    try:
        yield fleet
    finally:
        supervisor.cancel()


async def dead_letters(docket: Docket) -> list[str]:
    return [letter.key async for letter in docket.dead.find()]


async def leaves_nothing(docket: Docket) -> None:
    """No record of a suspect is left when the work is done."""

    async def nothing() -> bool:
        async with docket.redis() as redis:
            return not await redis.exists(docket.key("suspects"), docket.key("alone"))

    await eventually(nothing, "no record of a suspect is left")


async def completed(executions: list[Execution]) -> None:
    for execution in executions:
        await execution.get_result(timeout=MINUTES)
        await execution.sync()
        assert execution.state is ExecutionState.COMPLETED


@pytest.mark.parametrize("workers", [1, 2, 5])
async def test_a_poison_among_twenty_neighbours_is_buried_and_all_neighbours_complete(
    harness: Harness, workers: int
) -> None:
    docket = await harness.docket(lease=LEASE)
    neighbours = [await docket.add(tasks.nap, key=f"neighbour-{i}")(0.4) for i in range(10)]
    poison = await docket.add(tasks.leave, key="poison")("exit" if workers % 2 else "kill")
    neighbours += [await docket.add(tasks.nap, key=f"neighbour-{i}")(0.4) for i in range(10, 20)]
    async with supervised(harness, workers, concurrency=25):
        with pytest.raises(WorkerLost, match="losses so far: "):
            await poison.get_result(timeout=MINUTES)
        await completed(neighbours)
    assert await dead_letters(docket) == ["poison"]
    # Two losses, halves of 21 (10, 5, 2, 1), and one alone.
    assert 3 <= harness.reports.count("start", "poison") <= 7
    await leaves_nothing(docket)


async def test_fifty_long_tasks_of_a_worker_that_was_killed_twice_run_in_halves_at_the_same_time(
    harness: Harness,
) -> None:
    docket = await harness.docket(lease=LEASE)
    executions = [await docket.add(tasks.hold, key=f"long-{i}")("go") for i in range(50)]
    victim = harness.worker_process(lease=LEASE, concurrency=60)
    await eventually(lambda: harness.reports.count("start") == 50, "all fifty run")
    for starts in (100, 150):
        survivors = [harness.worker_process(lease=LEASE, concurrency=60) for _ in range(1 if starts == 100 else 2)]
        await harness.at_work(docket, *survivors)
        victim.kill()
        await eventually(lambda starts=starts: harness.reports.count("start") == starts, f"{starts} starts")
        victim = survivors[0]
    halves = Counter(report.pid for report in harness.reports.read("start")[100:])
    assert sorted(halves.values()) == [25, 25]

    harness.reports.release("go")
    await completed(executions)
    assert harness.reports.count("start") == 150
    assert await dead_letters(docket) == []
    await leaves_nothing(docket)


async def test_a_poison_is_buried_under_constant_load(harness: Harness) -> None:
    """No worker is ever idle by itself: one of them has to make room."""
    docket = await harness.docket(lease=LEASE)
    plain: list[Execution] = []

    async def keep_busy() -> None:
        while True:
            unfinished = (await docket.snapshot()).total_tasks
            for _ in range(max(24 - unfinished, 0)):
                plain.append(await docket.add(tasks.nap)(0.3))
            await asyncio.sleep(0.05)

    load = asyncio.create_task(keep_busy())
    async with supervised(harness, 2, concurrency=4):
        await eventually(lambda: harness.reports.count("finish") > 10, "the workers work")
        poison = await docket.add(tasks.leave, key="poison")("kill")
        try:
            with pytest.raises(WorkerLost):
                await poison.get_result(timeout=MINUTES)
        finally:
            load.cancel()
        await completed(plain)
    assert await dead_letters(docket) == ["poison"]
    await leaves_nothing(docket)


async def test_a_worker_that_was_told_to_stop_and_is_killed_in_its_grace_period_does_not_count(
    harness: Harness,
) -> None:
    docket = await harness.docket(lease=LEASE)
    execution = await docket.add(tasks.hold, key="task")("go")

    async def says_so() -> bool:
        async with docket.redis() as redis:
            return await redis.scard(docket.key("stopping")) == 1

    for starts in range(1, 5):
        worker = harness.worker_process(lease=LEASE, grace=60.0)
        await harness.started("task", times=starts)
        worker.send(signal.SIGTERM)
        await eventually(says_so, "the server knows that the worker stops")
        worker.kill()
        await worker.ended()
    survivor = harness.worker_process(lease=LEASE)
    await harness.started("task", times=5)
    harness.reports.release("go")
    assert await execution.get_result(timeout=MINUTES) == str(survivor.pid)
    assert execution.redelivered
    assert await dead_letters(docket) == []


async def test_tasks_that_stopping_workers_requeue_have_not_lost_a_worker(harness: Harness) -> None:
    docket = await harness.docket(lease=LEASE)
    execution = await docket.add(tasks.hold, key="task")("go")
    for starts in range(1, 4):
        worker = harness.worker_process(lease=LEASE, grace=0.0)
        await harness.started("task", times=starts)
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
    for starts in (4, 5):
        worker = harness.worker_process(lease=LEASE)
        await harness.started("task", times=starts)
        worker.kill()
    survivor = harness.worker_process(lease=LEASE)
    await harness.started("task", times=6)
    harness.reports.release("go")
    assert await execution.get_result(timeout=MINUTES) == str(survivor.pid), "two losses bury nothing"


@pytest.mark.parametrize("setting", ["docket", "task"])
async def test_one_loss_buries_a_task_if_docket_or_task_say_so(harness: Harness, setting: str) -> None:
    docket = await harness.docket(lease=LEASE, max_losses=1 if setting == "docket" else 3)
    if setting == "docket":
        execution = await docket.add(tasks.leave, key="task")("kill")
    else:
        execution = await docket.add(tasks.leave_once, key="task")("kill")
    victim = harness.worker_process(lease=LEASE)
    await harness.started("task")
    await victim.ended()
    # Whoever finds the dead decides.
    working = asyncio.create_task((await harness.worker(docket)).run_forever())
    try:
        with pytest.raises(WorkerLost, match="losses so far: 1;"):
            await execution.get_result(timeout=MINUTES)
    finally:
        working.cancel()
        await working
    assert harness.reports.count("start", "task") == 1
    assert await dead_letters(docket) == ["task"]


@pytest.mark.parametrize(
    ("count", "error"),
    [(0, ValueError), (128, ValueError), (-1, ValueError), (True, TypeError), ("3", TypeError), (2.0, TypeError)],
)
def test_numbers_that_no_task_can_be_lost_are_refused(count: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="MaxLosses"):
        MaxLosses(count)
    with pytest.raises(error, match="max_losses"):
        Docket("docket", "memory://max-losses", max_losses=count)


async def test_a_suspect_is_not_to_blame_for_another_worker_of_its_process(harness: Harness) -> None:
    """Two workers share a process. The one kills it, so the
    other must not be running a suspect at that time."""
    docket = await harness.docket(lease=LEASE)
    innocent = await docket.add(tasks.hold, key="innocent")("go")
    for starts in (1, 2):
        victim = harness.worker_process(lease=LEASE, concurrency=1)
        await eventually(lambda starts=starts: harness.reports.count("start", "innocent") == starts, f"start {starts}")
        victim.kill()
    shared = harness.worker_process(lease=LEASE, concurrency=1, workers=2)
    await eventually(lambda: harness.reports.count("start", "innocent") == 3, "it runs alone")
    poison = await docket.add(tasks.leave, key="poison")("exit")
    # The other worker has a slot, and neither takes the poison nor keeps it from others.
    elsewhere = harness.worker_process(lease=LEASE, concurrency=1)
    await elsewhere.ended()
    assert shared.exit_code is None
    harness.reports.release("go")
    await completed([innocent])
    async with supervised(harness, 1):
        with pytest.raises(WorkerLost):
            await poison.get_result(timeout=MINUTES)
    assert await dead_letters(docket) == ["poison"]
    assert harness.reports.count("start", "innocent") == 3
    await leaves_nothing(docket)


async def test_a_task_that_asks_its_own_process_to_stop_is_taken_for_an_operator(harness: Harness) -> None:
    """A process that is told to stop requeues what runs, whoever
    told it: no loss, and the task is the first in line."""
    docket = await harness.docket(lease=LEASE)
    execution = await docket.add(tasks.leave, key="task")("terminate")
    for starts in range(1, 6):
        worker = harness.worker_process(lease=LEASE, grace=0.2)
        assert await worker.ended() == 0
        assert harness.reports.count("start", "task") == starts
    await execution.sync()
    assert execution.state is ExecutionState.QUEUED
    assert (await docket.ledger.tasks.get("task")).task.losses == 0  # pyright: ignore[reportOptionalMemberAccess]
    assert await dead_letters(docket) == []
