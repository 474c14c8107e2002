"""Servers that die, come back empty, stall, or refuse (rows B1, B3, B5, B7, B10)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chaos.proxy import Proxy
from docket import CurrentExecution, Docket, Execution, Perpetual
from docket.errors import ServerUnreachable
from tests.waiting import WAIT_LIMIT, ends, eventually

from .conftest import Harness
from .counted_tasks import CountedTasks, working
from .servers import Server


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(harness: Harness) -> None:
    """With `appendfsync always`."""
    server = harness.server("--appendonly", "yes", "--appendfsync", "always")
    docket = await harness.docket()
    counted = CountedTasks(docket)
    acknowledged: set[str] = set()

    async def produce(name: int) -> None:
        for i in range(10_000):
            try:
                await counted.add(f"{name}-{i}")
            except ServerUnreachable:
                return
            acknowledged.add(f"{name}-{i}")

    worker = await harness.worker(docket, concurrency=50)
    async with working(worker):
        producing = [asyncio.create_task(produce(n)) for n in range(4)]
        await eventually(lambda: len(counted.finished) > 100, "work is under way")
        server.kill()
        await asyncio.gather(*producing)
        server.start()
        await eventually(lambda: acknowledged <= counted.finished.keys(), "all that was acknowledged has run")
        await eventually(lambda: is_empty(docket), "and is settled")
    twice = [key for key, count in counted.starts.items() if count > 1]
    assert len(twice) <= 50, "only what was running, or just ended and not yet written down, may run again"
    assert len(acknowledged) > 100


async def is_empty(docket: Docket) -> bool:
    return (await docket.snapshot()).total_tasks == 0


async def test_workers_go_on_when_the_server_comes_back_empty(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket()
    counted = CountedTasks(docket)
    ticks = 0

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(seconds=0.1), automatic=True)) -> None:
        nonlocal ticks
        ticks += 1

    docket.register(tick)
    worker = await harness.worker(docket)
    async with working(worker):
        await counted.works("before")
        await counted.hold("running")
        await eventually(lambda: ticks > 2, "the automatic task runs")
        server.kill()
        server.start()
        await counted.works("after")
        ticks = 0
        await eventually(lambda: ticks > 2, "the automatic task is back")
        assert [info.name for info in await docket.workers()] == [worker.name]
        assert counted.cancelled == {}, "what runs goes on"
        counted.release.set()
        await eventually(lambda: counted.finished["running"] == 1, "and ends")
        await counted.works("afterwards")
    assert counted.starts["running"] == 1


DISASTERS = {
    "FLUSHALL": [("FLUSHALL",)],
    "the group is destroyed": [("XGROUP", "DESTROY", "{stream}", "docket-workers")],
    "both groups are destroyed": [
        ("XGROUP", "DESTROY", "{stream}", "docket-workers"),
        ("XGROUP", "DESTROY", "{front}", "docket-workers"),
    ],
    "the stream is deleted": [("DEL", "{stream}")],
    "SCRIPT FLUSH": [("SCRIPT", "FLUSH")],
    "all connections are killed": [("CLIENT", "KILL", "TYPE", "normal"), ("CLIENT", "KILL", "TYPE", "pubsub")],
}


@pytest.mark.parametrize("disaster", DISASTERS.values(), ids=DISASTERS.keys())
async def test_workers_rebuild_what_somebody_has_removed(harness: Harness, disaster: list[tuple[str, ...]]) -> None:
    server = harness.server()
    docket = await harness.docket()
    counted = CountedTasks(docket)
    ticks = 0

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(seconds=0.1), automatic=True)) -> None:
        nonlocal ticks
        ticks += 1

    docket.register(tick)
    names = {"stream": docket.stream_key, "front": docket.key("front")}
    async with AsyncExitStack() as stack:
        for i in range(2):
            await stack.enter_async_context(working(await harness.worker(docket, name=f"worker-{i}", concurrency=5)))
        running = [await counted.hold(f"running-{i}") for i in range(4)]
        await eventually(lambda: ticks > 2, "the automatic task runs")
        for command in disaster:
            server.run(*(word.format(**names) for word in command))
        await counted.works("after")
        ticks = 0
        await eventually(lambda: ticks > 2, "the automatic task is back")
        await eventually(lambda: are_registered(docket, 2), "both are registered")
        counted.release.set()
        await eventually(lambda: all(counted.finished[e.key] for e in running), "what ran has ended")
        if disaster != DISASTERS["FLUSHALL"]:
            for execution in running:
                assert await execution.get_result(timeout=WAIT_LIMIT) == execution.key
    assert all(counted.starts[e.key] == 1 for e in running), counted.starts


async def are_registered(docket: Docket, count: int) -> bool:
    return len(await docket.workers()) == count


async def test_waiting_work_survives_the_loss_of_the_group(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket()
    counted = CountedTasks(docket)
    for i in range(100):
        await counted.add(f"waiting-{i}")
    server.run("XGROUP", "DESTROY", docket.stream_key, "docket-workers")
    async with working(await harness.worker(docket, concurrency=5)):
        await eventually(lambda: len(counted.finished) == 100, "all have run")
    assert set(counted.starts.values()) == {1}


def no_saves(server: Server) -> None:
    """Snapshots fail, so the server stops taking writes (MISCONF)."""
    doomed = server.folder / "doomed"
    doomed.mkdir()
    server.run("CONFIG", "SET", "dir", str(doomed))
    server.run("CONFIG", "SET", "save", "900 1")
    doomed.rmdir()
    server.run("BGSAVE")


def restart_slowly(server: Server) -> None:
    """It loads for some seconds, and says so (LOADING)."""
    server.kill()
    server.start_loading_slowly()


REFUSALS: dict[str, tuple[Callable[[Server], object], Callable[[Server], object]]] = {
    "READONLY": (lambda s: s.run("REPLICAOF", "127.0.0.1", "1"), lambda s: s.run("REPLICAOF", "NO", "ONE")),
    "MASTERDOWN": (
        lambda s: (s.run("CONFIG", "SET", "replica-serve-stale-data", "no"), s.run("REPLICAOF", "127.0.0.1", "1")),
        lambda s: s.run("REPLICAOF", "NO", "ONE"),
    ),
    "NOREPLICAS": (
        lambda s: s.run("CONFIG", "SET", "min-replicas-to-write", "1"),
        lambda s: s.run("CONFIG", "SET", "min-replicas-to-write", "0"),
    ),
    "MISCONF": (no_saves, lambda s: s.run("CONFIG", "SET", "save", "")),
    "LOADING": (restart_slowly, lambda s: None),
    "gone": (lambda s: s.kill(), lambda s: s.start()),
}


@pytest.mark.parametrize("refusal", REFUSALS.keys())
async def test_a_server_that_refuses_for_a_while_costs_no_running_task(harness: Harness, refusal: str) -> None:
    server = harness.server("--appendonly", "yes", "--appendfsync", "always", "--enable-protected-configs", "yes")
    docket = await harness.docket(lease=1.0)
    counted = CountedTasks(docket)
    refuse, relent = REFUSALS[refusal]
    worker = await harness.worker(docket)
    async with working(worker) as task:
        running = await counted.hold("running")
        refuse(server)
        if refusal not in ("LOADING", "gone"):
            await eventually(lambda: refuses(server, refusal), f"the server answers {refusal}")
        with pytest.raises(ServerUnreachable):
            await counted.add("refused")
        # Two leases: nobody can take the work, so nobody may be robbed of it.
        await asyncio.sleep(2.0)
        assert not task.done()
        relent(server)
        await counted.works("after")
        assert counted.cancelled == {}
        counted.release.set()
        assert await running.get_result(timeout=WAIT_LIMIT) == "running"
    assert counted.starts["running"] == 1
    assert counted.starts["refused"] == 0, "what was refused was not stored"


def refuses(server: Server, word: str) -> bool:
    with server.client() as client:
        try:
            # A replica refuses a write before it looks at its master.
            client.get("probe") if word == "MASTERDOWN" else client.set("probe", 1)
        except Exception as error:
            return word in f"{type(error).__name__} {error}".upper()
    return False


@pytest.mark.parametrize(
    "words",
    [
        b"-ERR upstream is being moved, says the proxy\r\n",
        b"-ERR Error running script (call to f_1): @user_script:1: Script killed by user with SCRIPT KILL...\r\n",
    ],
    ids=["proxy", "killed"],
)
async def test_a_script_that_somebody_kills_does_not_end_a_worker(harness: Harness, words: bytes) -> None:
    """Nor do words that no release of today says: a worker
    ends only for what a change of settings has to mend."""
    async with Proxy(harness.server()) as proxy:
        docket = await harness.docket(url=proxy.url)
        counted = CountedTasks(docket)
        async with working(await harness.worker(docket)) as run:
            held = await counted.hold("held")
            proxy.refusal = words
            with pytest.raises(ServerUnreachable):
                await counted.add("refused")
            await eventually(lambda: proxy.refused >= 5, "the worker has been refused")
            # The ending of this one is refused, too.
            counted.release.set()
            await eventually(lambda: counted.finished["held"] == 1, "its body is over")
            await asyncio.sleep(0.2)
            proxy.refusal = None
            assert await held.get_result(timeout=WAIT_LIMIT) == "held"
            await counted.works("after")
            assert not run.done()
        assert counted.starts["held"] == 1


async def test_a_server_that_stalls_for_three_leases_starts_nothing_twice(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket()
    counted = CountedTasks(docket)
    async with AsyncExitStack() as stack:
        for i in range(2):
            await stack.enter_async_context(working(await harness.worker(docket, name=f"worker-{i}", concurrency=5)))
        running = [await counted.hold(f"running-{i}") for i in range(8)]
        later = await docket.add(counted.short, datetime.now(UTC) + timedelta(seconds=3), key="later")()
        server.pause()
        # Longer than three leases, and longer than a call may take.
        await asyncio.sleep(6.5)
        server.wake()
        assert await later.get_result(timeout=WAIT_LIMIT) == "later"
        await counted.works("after")
        counted.release.set()
        for execution in running:
            assert await execution.get_result(timeout=WAIT_LIMIT) == execution.key
    assert set(counted.starts.values()) == {1}, counted.starts
    assert counted.cancelled == {}


async def test_a_worker_that_runs_until_all_is_finished_survives_an_outage(harness: Harness) -> None:
    """So do its task, which reports progress meanwhile,
    and the caller that waits for the result."""
    server = harness.server("--appendonly", "yes", "--appendfsync", "always")
    docket = await harness.docket(lease=1.0)
    started, go_on = asyncio.Event(), asyncio.Event()

    async def report(execution: Execution = CurrentExecution()) -> str:
        await execution.progress.set_message("before")
        started.set()
        await go_on.wait()
        await execution.progress.set_message("meanwhile")
        return "done"

    execution = await docket.add(report)()
    later = await docket.add(report, datetime.now(UTC) + timedelta(seconds=2))()
    running = asyncio.create_task((await harness.worker(docket)).run_until_finished())
    waiting = asyncio.create_task(execution.get_result(timeout=WAIT_LIMIT))
    await started.wait()
    server.kill()
    await asyncio.sleep(1.2)
    go_on.set()
    await asyncio.sleep(0.2)
    assert not running.done()
    assert not waiting.done()
    server.start()
    await ends(running)
    assert await waiting == "done"
    assert await later.get_result() == "done"


async def test_a_worker_can_stop_while_the_server_is_gone(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket(lease=1.0)
    counted = CountedTasks(docket)
    async with working(await harness.worker(docket)):
        await counted.hold("running")
        server.kill()
        # Its ending cannot be written any more.
        counted.release.set()
        await eventually(lambda: counted.finished["running"] == 1, "it has ended")


async def test_a_folder_engine_that_is_killed_comes_back_with_its_work(
    harness: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKET_ENGINE_LINGER", "0.2")
    monkeypatch.setenv("DOCKET_ENGINE_FSYNC", "always")
    docket = await harness.docket(url=f"embedded://{folder / 'engine'}")
    counted = CountedTasks(docket)
    async with working(await harness.worker(docket, concurrency=5)):
        running = await counted.hold("running")
        async with docket.redis() as redis:
            pid = (await redis.info("server"))["process_id"]
        os.kill(pid, 9)
        await counted.works("after")
        counted.release.set()
        assert await running.get_result(timeout=WAIT_LIMIT) == "running"
    assert counted.starts["running"] == 1
