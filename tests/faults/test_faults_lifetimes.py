"""Opening and closing: nothing is left behind, nothing hangs, whoever cancels what, and when."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from docket import CurrentExecution, Docket, Execution, Worker
from tests.waiting import SECONDS, WAIT_LIMIT, ends, eventually

from .conftest import Harness
from .counted_tasks import CountedTasks

SCENARIO = """
import asyncio, gc, logging, sys, threading
from datetime import UTC, datetime, timedelta
from docket import CurrentExecution, Docket, Execution, Perpetual, Retry, Worker

async def work(n: int, execution: Execution = CurrentExecution()) -> int:
    await execution.progress.increment()
    return n

async def flaky(retry: Retry = Retry(attempts=2)) -> int:
    if retry.attempt == 1:
        raise ValueError("at first")
    return retry.attempt

async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=20), automatic=True)) -> None: ...

async def forever() -> None:
    await asyncio.Event().wait()

async def scenario(url: str) -> None:
    async with Docket("lifetimes", url) as docket:
        for function in (work, flaky, tick, forever):
            docket.register(function)
        async with Worker(docket) as worker:
            running = asyncio.create_task(worker.run_forever())
            executions = await asyncio.gather(*(docket.add(work)(n) for n in range(50)))
            assert [await e.get_result() for e in executions] == list(range(50))
            assert await (await docket.add(flaky)()).get_result() == 2
            events = executions[0].subscribe()
            await anext(events)
            await events.aclose()
            await docket.add(forever, key="forever")()
            await docket.add(work, datetime.now(UTC) + timedelta(hours=1), key="later")(1)
            await asyncio.sleep(0.05)
            await docket.cancel("forever")
            await docket.cancel("later")
            running.cancel()
            await running
        await docket.clear()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, left

for _ in range(3):
    # A loop of its own each time.
    asyncio.run(scenario(sys.argv[1]))
gc.collect()
threads = [t for t in threading.enumerate() if t is not threading.main_thread()]
assert not threads, threads
"""


@pytest.mark.parametrize("place", ["memory", "unix", "tcp"])
async def test_a_whole_life_leaves_no_warning_no_task_no_thread_and_no_connection(harness: Harness, place: str) -> None:
    """With every warning an error, on Python's development
    mode, in three event loops one after the other."""
    if place != "memory":
        harness.server(tcp=place == "tcp")
    url = "memory://lifetimes" if place == "memory" else harness.url
    # A warning of a library at import is not ours to judge.
    process = harness.process(["-X", "dev", "-W", "error", "-c", SCENARIO, url])
    assert await process.ended() == 0, process.output[-3000:]
    told = [line for line in process.output.splitlines() if "at first" not in line]
    assert not [line for line in told if "Warning" in line or "unclosed" in line or "never awaited" in line], told
    if place != "memory":
        await eventually(lambda: no_other_clients(harness), "all connections are closed")


def no_other_clients(harness: Harness) -> bool:
    with harness.servers[-1].client() as client:
        return len(client.client_list()) == 1


async def test_two_hundred_dockets_cost_one_server_and_milliseconds_each(harness: Harness) -> None:
    async with Docket("first", "memory://lifetimes-first") as first, first.redis() as redis:
        server = (await redis.info("server"))["process_id"]
    started = time.process_time()
    for i in range(200):
        async with Docket("docket", f"memory://lifetimes-{i}") as docket:
            async with docket.redis() as redis:
                assert (await redis.info("server"))["process_id"] == server
            assert (await docket.snapshot()).total_tasks == 0
    # Time of this process, since the machine may be busy with others.
    assert (time.process_time() - started) / 200 < 0.05


@pytest.mark.parametrize("method", ["run_forever", "run_until_finished", "run_at_most"])
async def test_cancelling_a_worker_drains_it_and_returns(harness: Harness, method: str) -> None:
    docket = await harness.docket()
    counted = CountedTasks(docket)
    worker = await harness.worker(docket)
    later = await docket.add(counted.short, datetime.now(UTC) + timedelta(hours=1), key="later")()
    run = {
        "run_forever": worker.run_forever,
        "run_until_finished": worker.run_until_finished,
        "run_at_most": lambda: worker.run_at_most({"later": 1}),
    }[method]
    working = asyncio.create_task(run())
    running = await counted.hold("running")
    working.cancel()
    await eventually(lambda: worker.is_stopping, "it stops")
    waiting = await counted.add("waiting")
    counted.release.set()
    await ends(working)
    assert not working.cancelled()
    assert await running.get_result(timeout=WAIT_LIMIT) == "running", "what ran has finished"
    assert counted.starts["waiting"] == 0, "nothing new was begun"
    assert {e.key for e in (await docket.snapshot()).future} == {"waiting", "later"}
    assert await docket.workers() == []
    for execution in (waiting, later):
        await docket.cancel(execution.key)


async def test_a_worker_inside_a_timeout_stops_when_time_is_up(harness: Harness) -> None:
    docket = await harness.docket()
    worker = await harness.worker(docket)
    async with asyncio.timeout(0.3):
        await worker.run_forever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_cancelling_twice_requeues_what_runs(harness: Harness) -> None:
    docket = await harness.docket(lease=60.0)
    counted = CountedTasks(docket)
    # As often as you like: the task is not to blame, so it is not buried for it.
    for stops in range(1, 6):
        worker = await harness.worker(docket)
        working = asyncio.create_task(worker.run_forever())
        await docket.add(counted.long, key="running")()
        await eventually(lambda stops=stops: counted.starts["running"] == stops, "it runs")
        working.cancel()
        await eventually(lambda worker=worker: worker.is_stopping, "it stops")
        assert not working.done()
        working.cancel()
        await ends(working)
        assert counted.cancelled["running"] == stops
    counted.release.set()
    await ends(asyncio.create_task((await harness.worker(docket)).run_until_finished()))
    assert counted.starts["running"] == 6
    assert counted.finished["running"] == 1


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 10, 20])
async def test_a_second_cancel_counts_however_soon_it_comes(harness: Harness, turns: int) -> None:
    """Also while the worker still ends its services."""
    docket = await harness.docket(lease=60.0)
    counted = CountedTasks(docket)
    working = asyncio.create_task((await harness.worker(docket)).run_forever())
    await docket.add(counted.long, key="running")()
    await eventually(lambda: counted.starts["running"] == 1, "it runs")
    working.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    working.cancel()
    await ends(working, 60)
    assert counted.cancelled["running"] == 1
    await docket.clear()


async def test_a_worker_can_be_cancelled_at_any_moment_of_its_set_up(harness: Harness) -> None:
    docket = await harness.docket()
    before = threading.active_count()
    # Before its first step there is no worker that could return.
    for moment in range(1, 60):
        async with Worker(docket) as worker:
            working = asyncio.create_task(worker.run_forever())
            for _ in range(moment):
                await asyncio.sleep(0)
            working.cancel()
            await ends(working, 10)
    # The pool of threads that asyncio keeps may have grown by a few.
    assert threading.active_count() - before < 8
    assert not [thread.name for thread in threading.enumerate() if "renewing" in thread.name]
    assert await docket.workers() == []


async def test_a_docket_can_be_cancelled_at_any_moment_of_its_set_up(harness: Harness) -> None:
    server = harness.server()

    async def live() -> None:
        async with Docket(harness.name, harness.url) as docket:
            await docket.snapshot()
            await asyncio.sleep(0.05)

    for moment in range(40):
        living = asyncio.create_task(live())
        for _ in range(moment):
            await asyncio.sleep(0)
        living.cancel()
        await asyncio.wait([living], timeout=SECONDS)
        assert living.done()
    gc.collect()
    await eventually(lambda: len(server.run("CLIENT", "LIST").splitlines()) == 1, "all connections are closed")


async def test_a_docket_and_a_worker_can_be_entered_again(harness: Harness) -> None:
    docket = Docket(harness.name, harness.url)
    worker = Worker(docket)

    async def answer(execution: Execution = CurrentExecution()) -> str:
        return execution.key

    for round_number in range(3):
        async with docket, worker:
            with pytest.raises(AssertionError):
                await docket.__aenter__()
            with pytest.raises(AssertionError):
                await worker.__aenter__()
            execution = await docket.add(answer, key=f"round-{round_number}")()
            await worker.run_until_finished()
            await worker.run_until_finished()
            assert await execution.get_result() == f"round-{round_number}"


async def test_leaving_with_work_under_way_waits_for_nobody_outside(harness: Harness) -> None:
    """Adds that nobody awaited any more are sent; waiters are
    woken with an error or a cancel, and nothing hangs."""
    docket = Docket(harness.name, harness.url)

    async def nothing() -> None: ...

    async with docket:
        execution = await docket.add(nothing, datetime.now(UTC) + timedelta(hours=1))()
        waiting = asyncio.create_task(execution.get_result())
        adding = [asyncio.create_task(docket.add(nothing)()) for _ in range(100)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
    await asyncio.wait(adding, timeout=SECONDS)
    assert all(task.done() for task in adding)
    waiting.cancel()
    await asyncio.wait([waiting], timeout=SECONDS)
    assert waiting.done()
    async with docket:
        assert (await docket.snapshot()).total_tasks >= 1
        await docket.clear()
