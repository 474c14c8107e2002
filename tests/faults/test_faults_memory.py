"""Servers without memory, or that make room by deleting (rows B8, B9)."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest

from docket import Docket, ExecutionState, Perpetual
from docket.errors import ServerFull
from tests.waiting import WAIT_LIMIT, eventually

from .conftest import Harness
from .counted_tasks import CountedTasks, working
from .servers import Server


def fill(server: Server) -> None:
    """From now on the server has less memory than it uses."""
    used = server.memory_used()
    server.run("CONFIG", "SET", "maxmemory", str(used - 100_000))


async def test_on_a_full_server_adding_is_refused_and_everything_else_works(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket(lease=1.0)
    counted = CountedTasks(docket)
    worker = await harness.worker(docket, concurrency=2)
    async with working(worker):
        running = [await counted.hold("running"), await counted.hold("to be cancelled")]
        waiting = [await counted.add(f"waiting-{i}") for i in range(20)]
        due = await docket.add(counted.short, datetime.now(UTC) + timedelta(seconds=0.5), key="due")()
        later = await docket.add(counted.short, datetime.now(UTC) + timedelta(hours=1), key="later")()
        fill(server)
        for _ in range(2):
            with pytest.raises(ServerFull):
                await counted.add("refused")
        failed = await docket.add_many([docket.call(counted.short, key="refused too")()])
        assert isinstance(failed[0].schedule_exception, ServerFull)
        assert await docket.get_execution("refused") is None
        assert await docket.get_execution("refused too") is None

        await docket.cancel("later")
        await docket.cancel("to be cancelled")
        await eventually(lambda: counted.cancelled["to be cancelled"], "the running one is cancelled")
        # Longer than the lease: it is renewed.
        await asyncio.sleep(1.5)
        counted.release.set()
        assert await running[0].get_result(timeout=WAIT_LIMIT) == "running"
        for execution in [*waiting, due]:
            assert await execution.get_result(timeout=WAIT_LIMIT) == execution.key
        await later.sync()
        assert later.state is ExecutionState.CANCELLED
    assert set(counted.starts.values()) == {1}


async def test_a_worker_can_start_on_a_full_server_and_make_room(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket()
    counted = CountedTasks(docket)

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(hours=1), automatic=True)) -> None: ...

    docket.register(tick)
    waiting = [await counted.add(f"waiting-{i}") for i in range(50)]
    fill(server)
    async with working(await harness.worker(docket)):
        for execution in waiting:
            assert await execution.get_result(timeout=WAIT_LIMIT) == execution.key
        server.run("CONFIG", "SET", "maxmemory", "0")
        await counted.works("after")


@pytest.mark.parametrize(
    ("policy", "risk"),
    [
        ("allkeys-lru", "tasks that wait"),
        ("volatile-ttl", "rate limits"),
        ("volatile-lru", "finished tasks"),
        ("noeviction", None),
    ],
)
async def test_a_policy_that_may_delete_work_is_warned_of(
    harness: Harness, policy: str, risk: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    server = harness.server()
    server.run("CONFIG", "SET", "maxmemory-policy", policy)
    docket = await harness.docket()
    with caplog.at_level(logging.WARNING, "docket.storage"):
        async with working(await harness.worker(docket)):
            await CountedTasks(docket).works("task")
    warnings = [record.getMessage() for record in caplog.records if "maxmemory-policy" in record.getMessage()]
    assert len(warnings) == (0 if risk is None else 1)
    assert all(policy in warning and "noeviction" in warning and (risk or "") in warning for warning in warnings)


@pytest.mark.parametrize(("appendonly", "save"), [("no", ""), ("yes", ""), ("no", "3600 1")])
async def test_a_server_that_keeps_nothing_on_disk_is_warned_of(
    harness: Harness, appendonly: str, save: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = harness.server()
    server.run("CONFIG", "SET", "appendonly", appendonly)
    server.run("CONFIG", "SET", "save", save)
    docket = await harness.docket()
    with caplog.at_level(logging.WARNING, "docket.storage"):
        async with working(await harness.worker(docket)):
            await CountedTasks(docket).works("task")
    warnings = [record.getMessage() for record in caplog.records if "appendonly" in record.getMessage()]
    assert len(warnings) == (appendonly == "no" and save == "")
    assert all("a restart loses all tasks" in warning for warning in warnings)


async def test_a_docket_in_memory_is_not_warned_of(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    docket = await harness.docket(url=f"memory://{harness.name}")
    with caplog.at_level(logging.WARNING, "docket.storage"):
        async with working(await harness.worker(docket)):
            await CountedTasks(docket).works("task")
    assert not [record for record in caplog.records if record.name == "docket.storage"]


async def test_unfinished_work_never_expires_and_finished_work_always_does(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket()
    counted = CountedTasks(docket)
    async with working(await harness.worker(docket)):
        await counted.works("done")
        await counted.hold("running")
        await docket.add(counted.short, datetime.now(UTC) + timedelta(hours=1), key="later")()
        expiring = {key for key, ttl in lifetimes(server).items() if ttl >= 0}
        # Which worker leads in a duty is forgotten by itself, and so are the settings, the
        # statistics, the history and the declarations of functions; those are not work.
        other = (b":leads:", b":settings", b":stats-", b":history-", b":declared")
        work = {key for key in expiring if not any(part in key for part in other)}
        assert work == {docket.runs_key("done").encode()}
        counted.release.set()
        await eventually(lambda: is_finished(docket, "running"), "it has ended")
        assert lifetimes(server)[docket.runs_key("running").encode()] > 0


async def is_finished(docket: Docket, key: str) -> bool:
    execution = await docket.get_execution(key)
    return execution is not None and execution.state.finished


def lifetimes(server: Server) -> dict[bytes, int]:
    with server.client() as client:
        return {key: client.pttl(key) for key in client.keys("*")}
