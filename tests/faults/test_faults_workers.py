"""Workers that are killed, paused, blocked, told to
stop, or taken down by what they run (rows A1 to A5)."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from datetime import timedelta

import pytest

from docket import CurrentExecution, Docket, Execution, ExecutionState
from docket.errors import WorkerLost
from tests.waiting import WAIT_LIMIT, ends, eventually

from . import tasks
from .conftest import Harness
from .processes import LEASE


async def reads_blocked(docket: Docket) -> int:
    """How many workers wait on the server for work."""
    async with docket.redis() as redis:
        clients: list[dict[str, str]] = await redis.client_list()  # pyright: ignore[reportUnknownMemberType]
    database = str(docket.server.database)
    return sum(c["db"] == database and c["cmd"] == "xreadgroup" and "b" in c["flags"] for c in clients)


async def ended(docket: Docket, key: str) -> Execution:
    """The execution, once the task has ended."""

    async def look() -> Execution | None:
        execution = await docket.get_execution(key)
        return execution if execution is not None and execution.state.finished else None

    execution = await eventually(look, f"task {key} has ended")
    assert execution is not None
    return execution


async def test_a_killed_workers_tasks_run_again_elsewhere_within_about_the_lease(harness: Harness) -> None:
    docket = await harness.docket()
    victim = harness.worker_process()
    await harness.at_work(docket, victim)
    executions = [await docket.add(tasks.hold, key=f"task-{i}")("go") for i in range(10)]
    await eventually(lambda: harness.reports.count("start") == 10, "all ten run")
    survivor = harness.worker_process()
    await harness.at_work(docket, survivor)

    victim.kill()
    killed_at = time.monotonic()
    await eventually(lambda: harness.reports.count("start") == 20, "all ten run again")
    assert time.monotonic() - killed_at < LEASE + 60, "recovered within about the lease"
    harness.reports.release("go")

    assert {await e.get_result(timeout=WAIT_LIMIT) for e in executions} == {str(survivor.pid)}
    assert harness.reports.count("start") == 20, "each ran twice: the fault explains the second start"
    assert [e.redelivered for e in executions] == [True] * 10


async def test_a_paused_workers_run_no_longer_counts_and_is_cancelled_when_it_wakes(harness: Harness) -> None:
    docket = await harness.docket()
    sleeper = harness.worker_process()
    await harness.at_work(docket, sleeper)
    execution = await docket.add(tasks.swallow, key="task")("never")
    await harness.started("task")
    other = harness.worker_process()
    await harness.at_work(docket, other)

    sleeper.pause()
    await harness.started("task", times=2)
    sleeper.wake()
    woken_at = time.monotonic()
    await eventually(lambda: harness.reports.count("cancelled", "task") == 1, "the stale call is cancelled")
    cancelled = harness.reports.read("cancelled", "task")[0]
    assert cancelled.pid == sleeper.pid
    assert cancelled.at - woken_at < 1.0, "promptly"

    # The stale run has written progress and a result by now, and nobody has seen either.
    await eventually(lambda: "↩" in sleeper.output, "the stale run has ended")
    await execution.sync()
    assert execution.state is ExecutionState.RUNNING
    assert execution.worker == other.name
    assert execution.progress.message is None
    harness.reports.release("never")
    assert await execution.get_result(timeout=WAIT_LIMIT) == str(other.pid)
    assert harness.reports.count("start", "task") == 2

    # The worker that slept works on, under a new lease.
    other.send(signal.SIGTERM)
    assert await other.ended() == 0
    afterwards = await docket.add(tasks.nap, key="afterwards")(0)
    assert await afterwards.get_result(timeout=WAIT_LIMIT) == str(sleeper.pid)


async def test_a_paused_worker_does_not_start_what_it_was_handed_before_the_pause(harness: Harness) -> None:
    """Deliveries that lie in the socket of a paused
    worker belong to others by the time it wakes."""
    docket = await harness.docket()
    sleeper = harness.worker_process(concurrency=50)
    await eventually(lambda: reads_blocked(docket), "its blocking read is under way")
    sleeper.pause()
    # So the server hands it this while it sleeps.
    executions = [await docket.add(tasks.nap, key=f"task-{i}")(0.2) for i in range(5)]
    other = harness.worker_process(concurrency=50)
    for execution in executions:
        assert await execution.get_result(timeout=WAIT_LIMIT) == str(other.pid)
    sleeper.wake()
    await eventually(lambda: "lost its lease" in sleeper.output, "the sleeper has learnt what happened")
    assert [harness.reports.count("start", e.key) for e in executions] == [1] * 5


async def test_a_paused_worker_does_not_begin_the_rest_of_its_batch_when_it_wakes(harness: Harness) -> None:
    """The first body blocks the event loop, so the others are claimed and have not begun."""
    docket = await harness.docket()
    first = await docket.add(tasks.block_until_released, key="first")("go")
    rest = await docket.add_many([docket.call(tasks.nap, key=f"task-{i}")(0) for i in range(4)])
    sleeper = harness.worker_process()
    await harness.started("first")
    for execution in rest:
        await execution.sync()
        assert execution.state is ExecutionState.RUNNING

    sleeper.pause()
    harness.reports.release("go")
    other = harness.worker_process()
    for execution in (first, *rest):
        await execution.get_result(timeout=WAIT_LIMIT)
    sleeper.wake()
    await eventually(lambda: harness.reports.count("finish", "first") == 2, "its event loop goes on")
    await eventually(lambda: "lost its lease" in sleeper.output, "the sleeper has learnt what happened")
    afterwards = await docket.add(tasks.nap, key="afterwards")(0)
    await afterwards.get_result(timeout=WAIT_LIMIT)
    assert [harness.reports.count("start", e.key) for e in rest] == [1] * 4
    assert {r.pid for e in rest for r in harness.reports.read("start", e.key)} == {other.pid}


async def test_a_task_that_blocks_the_event_loop_for_three_leases_starts_once(harness: Harness) -> None:
    docket = await harness.docket(lease=1.0)
    blocked = harness.worker_process(lease=1.0)
    await harness.at_work(docket, blocked)
    execution = await docket.add(tasks.block, key="task")(3.5)
    await harness.started("task")
    other = harness.worker_process(lease=1.0)
    await harness.at_work(docket, other)

    await execution.get_result(timeout=WAIT_LIMIT)
    assert harness.reports.count("start", "task") == 1
    assert harness.reports.read("start")[0].pid == blocked.pid
    await eventually(lambda: "the event loop has been blocked" in blocked.output, "the warning is there")
    assert "time.sleep(seconds)" in blocked.output, "with the stack of the code that blocks"


async def test_a_worker_whose_event_loop_is_blocked_keeps_no_work_from_an_idle_one(harness: Harness) -> None:
    docket = await harness.docket(lease=2.0)
    first, second = harness.worker_process(lease=2.0), harness.worker_process(lease=2.0)
    await harness.at_work(docket, first, second)

    async def both_offer() -> bool:
        return int(await docket.server.client.zcard(docket.keys.key("offers"))) == 2

    # So the blocker is delivered directly, and its worker has no offer left. A worker that blocks
    # while it still has an offer keeps one direct delivery until its loop runs again.
    await eventually(both_offer, "both workers offer a slot")
    blocker = await docket.add(tasks.block_until_released, key="blocker")("blocker")
    await harness.started("blocker")

    executions: list[Execution] = []
    for batch in range(5):
        calls = [docket.call(tasks.nap, key=f"task-{batch}-{n}")(0) for n in range(20)]
        added = await docket.add_many(calls)
        executions += added
        for execution in added:
            await execution.get_result(timeout=WAIT_LIMIT)
    assert harness.reports.count("finish", "blocker") == 0
    harness.reports.release("blocker")
    await blocker.get_result(timeout=WAIT_LIMIT)
    assert [harness.reports.count("start", execution.key) for execution in executions] == [1] * 100
    assert harness.reports.count("start", "blocker") == 1


async def test_sigterm_lets_a_task_that_is_longer_than_the_lease_finish(harness: Harness) -> None:
    docket = await harness.docket(lease=1.0)
    leaving = harness.worker_process(lease=1.0)
    await harness.at_work(docket, leaving)
    execution = await docket.add(tasks.nap, key="task")(3.5)
    await harness.started("task")
    other = harness.worker_process(lease=1.0)
    await harness.at_work(docket, other)

    async def waiting() -> int:
        """How many workers wait for work."""
        return sum("b" in client["flags"] for client in await docket.server.client.client_list())

    async def both_wait() -> bool:
        return await waiting() == 2

    async def one_waits() -> bool:
        return await waiting() == 1

    await eventually(both_wait, "both wait for work")
    leaving.send(signal.SIGTERM)
    await eventually(one_waits, "the one that stops asks for nothing any more")
    late = await docket.add(tasks.nap, key="late")(0)
    assert await late.get_result(timeout=WAIT_LIMIT) == str(other.pid), "the one that stops takes no new work"
    assert await execution.get_result(timeout=WAIT_LIMIT) == str(leaving.pid)
    assert await leaving.ended() == 0
    assert harness.reports.count("start", "task") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_log_tells_of_a_signal_and_of_the_tasks_that_still_run(
    harness: Harness, number: signal.Signals
) -> None:
    docket = await harness.docket()
    worker = harness.worker_process()
    await harness.at_work(docket, worker)
    for key in ("one", "two"):
        await docket.add(tasks.nap, key=key)(600)
        await harness.started(key)
    worker.send(number)
    await eventually(lambda: "Shutdown requested" in worker.output, "it drains")
    worker.send(number)
    assert await worker.ended() == 0
    logged = [line.partition(" docket.worker INFO ")[2] for line in worker.output.splitlines()]
    said = [line for line in logged if line.startswith(("Received", "Shutdown"))]
    assert said[0].startswith(f"Received {number.name}, initiating graceful shutdown")
    assert said[1].startswith("Shutdown requested, finishing 2")
    assert said[2].startswith(f"Received {number.name} again")
    assert len(said) == 3


async def test_what_outlives_the_grace_period_is_requeued_at_once(harness: Harness) -> None:
    # A lease that nobody waits for: the task must come back long before it ends.
    docket = await harness.docket(lease=60.0)
    leaving = harness.worker_process(lease=60.0, grace=0.5)
    await harness.at_work(docket, leaving)
    execution = await docket.add(tasks.hold, key="task")("go")
    await harness.started("task")
    other = harness.worker_process(lease=60.0)
    await harness.at_work(docket, other)

    leaving.send(signal.SIGTERM)
    await harness.started("task", times=2)
    assert await leaving.ended() == 0
    harness.reports.release("go")
    assert await execution.get_result(timeout=WAIT_LIMIT) == str(other.pid)


async def test_a_task_that_ignores_its_cancel_cannot_keep_a_worker_from_stopping(harness: Harness) -> None:
    docket = await harness.docket()
    starts, ignored, release = 0, 0, asyncio.Event()

    async def stubborn() -> None:
        nonlocal starts, ignored
        starts += 1
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                ignored += 1

    await docket.add(stubborn, key="task")()
    worker = await harness.worker(docket, grace_period=timedelta(seconds=0.2))
    working = asyncio.create_task(worker.run_forever())
    await eventually(lambda: starts == 1, "it runs")
    working.cancel()
    await ends(working)
    assert ignored >= 1
    assert await docket.workers() == []

    # The task is not lost with it: the next worker has it.
    working = asyncio.create_task((await harness.worker(docket)).run_until_finished())
    await eventually(lambda: starts == 2, "it runs elsewhere")
    release.set()
    await ends(working)
    assert (await ended(docket, "task")).state is ExecutionState.COMPLETED


async def test_workers_that_come_and_go_under_load_start_each_task_once(harness: Harness) -> None:
    """Also a claim that is under way when a worker is told to stop is not left behind."""
    docket = await harness.docket()
    starts: Counter[str] = Counter()
    redelivered: list[str] = []

    async def count(execution: Execution = CurrentExecution()) -> None:
        starts[execution.key] += 1
        if execution.redelivered:
            redelivered.append(execution.key)
        await asyncio.sleep(0.001)

    await docket.add_many(docket.call(count, key=f"task-{i}")() for i in range(3000))
    while len(starts) < 3000:
        working = asyncio.create_task((await harness.worker(docket, concurrency=20)).run_forever())
        seen = len(starts)
        await eventually(lambda seen=seen: len(starts) >= min(seen + 60, 3000), "more of them run")
        working.cancel()
        await ends(working)
    assert set(starts.values()) == {1}
    assert redelivered == []
    assert (await docket.snapshot()).total_tasks == 0


@pytest.mark.parametrize("how", ["exit", "kill"])
async def test_a_task_that_kills_its_worker_is_buried_and_its_neighbours_finish(harness: Harness, how: str) -> None:
    docket = await harness.docket(lease=1.0)
    deadly = await docket.add(tasks.leave, key="deadly")(how)
    neighbours = [await docket.add(tasks.nap, key=f"neighbour-{i}")(0.4) for i in range(6)]
    fleet = [harness.worker_process(lease=1.0) for _ in range(2)]

    async def supervise() -> None:
        """Starts a new worker for each that dies, as a supervisor would."""
        while True:
            for i, worker in enumerate(fleet):
                if worker.exit_code is not None:
                    fleet[i] = harness.worker_process(lease=1.0)
            await asyncio.sleep(0.05)

    supervisor = asyncio.create_task(supervise())
    try:
        with pytest.raises(WorkerLost):
            await deadly.get_result(timeout=WAIT_LIMIT)
        for neighbour in neighbours:
            await neighbour.get_result(timeout=WAIT_LIMIT)
    finally:
        supervisor.cancel()
    # Two losses, then halves of at most seven tasks (3, 1) until it is alone.
    assert 3 <= harness.reports.count("start", "deadly") <= 5
    assert (await ended(docket, "deadly")).state is ExecutionState.FAILED
    assert [letter.key async for letter in docket.dead.find()] == ["deadly"], "kept as the one dead letter"
