"""The same small life on every kind of server, and
what is special to clusters and sentinels (row B5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from docket import CurrentExecution, Docket, Execution, ExecutionCancelled, ExecutionState
from docket.errors import ServerUnreachable
from tests.waiting import WAIT_LIMIT, eventually, eventually_blocking

from .conftest import Harness
from .counted_tasks import CountedTasks, working
from .servers import Server

NODES = 3
SLOTS = 16384


def cluster_of(harness: Harness) -> list[Server]:
    """Three nodes without replicas, each with a third of the slots."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--appendonly", "yes")
    nodes = [harness.server(*options, tcp=True) for _ in range(NODES)]
    for i, node in enumerate(nodes):
        node.run("CLUSTER", "ADDSLOTSRANGE", i * SLOTS // NODES, (i + 1) * SLOTS // NODES - 1)
        node.run("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
    for node in nodes[1:]:
        node.run("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
    eventually_blocking(lambda: all(is_whole(node) for node in nodes), "the cluster is up")
    return nodes


def is_whole(node: Server) -> bool:
    info = node.run("CLUSTER", "INFO")
    text = info.decode() if isinstance(info, bytes) else str(info)
    return ("cluster_state:ok" in text or "'cluster_state': 'ok'" in text) and (
        f"cluster_known_nodes:{NODES}" in text or f"'cluster_known_nodes': '{NODES}'" in text
    )


def sentinel_of(harness: Harness) -> tuple[Server, Server, Server]:
    """A master, a replica and a sentinel that watches them."""
    master = harness.server(tcp=True)
    replica = harness.server("--replicaof", "127.0.0.1", str(master.port), tcp=True)
    sentinel = harness.server(sentinel=True)
    sentinel.run("SENTINEL", "MONITOR", "main", "127.0.0.1", master.port, 1)
    for option, value in (("down-after-milliseconds", 500), ("failover-timeout", 3000)):
        sentinel.run("SENTINEL", "SET", "main", option, value)
    return master, replica, sentinel


@contextmanager
def place(harness: Harness, kind: str) -> Iterator[str]:
    if kind == "memory":
        yield f"memory://{harness.name}"
    elif kind == "embedded":
        yield f"embedded://{harness.folder / 'engine'}"
    elif kind == "unix":
        yield harness.server().url
    elif kind == "tcp":
        yield harness.server(tcp=True).url
    elif kind == "valkey":
        yield harness.server(tcp=True).url.replace("redis://", "valkey://")
    elif kind == "cluster":
        yield f"redis+cluster://127.0.0.1:{cluster_of(harness)[0].port}"
    else:
        yield f"redis+sentinel://127.0.0.1:{sentinel_of(harness)[2].port}/main/0"


@pytest.mark.parametrize("kind", ["memory", "embedded", "unix", "tcp", "valkey", "cluster", "sentinel"])
async def test_the_same_life_on_every_kind_of_server(
    harness: Harness, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKET_ENGINE_LINGER", "0.2")
    with place(harness, kind) as url:
        docket = await harness.docket(url=url)
        async with working(await harness.worker(docket, concurrency=50)):
            await live(docket)
        assert await docket.workers() == []
        assert (await docket.snapshot()).total_tasks == 0


async def live(docket: Docket) -> None:
    counted = CountedTasks(docket)

    async def double(n: int, execution: Execution = CurrentExecution()) -> int:
        await execution.progress.increment()
        return 2 * n

    async def fail() -> None:
        raise ValueError("as it should")

    docket.register(fail, names=["fail on purpose"])
    executions = await asyncio.gather(*(docket.add(double)(n) for n in range(100)))
    assert [await e.get_result(timeout=WAIT_LIMIT) for e in executions] == [2 * n for n in range(100)]
    many = await docket.add_many(docket.call(double)(n) for n in range(100))
    assert [await e.get_result(timeout=WAIT_LIMIT) for e in many] == [2 * n for n in range(100)]

    before = time.time()
    later = await docket.add(double, datetime.now(UTC) + timedelta(seconds=0.5), key="later")(1)
    assert later.state is ExecutionState.SCHEDULED
    replaced = await docket.replace(double, datetime.now(UTC) + timedelta(seconds=0.5), "later")(2)
    assert await replaced.get_result(timeout=WAIT_LIMIT) == 4
    assert time.time() - before >= 0.49

    async def echo(value: bytes) -> bytes:
        return value

    large = await docket.add(echo)(b"v" * 300_000)
    assert await large.get_result(timeout=WAIT_LIMIT) == b"v" * 300_000

    failing = await docket.add("fail on purpose")()
    with pytest.raises(ValueError, match="as it should"):
        await failing.get_result(timeout=WAIT_LIMIT)

    running = await counted.hold("running")
    events = running.subscribe()
    assert (await anext(events))["type"] == "state"
    waiting = await docket.add(double, datetime.now(UTC) + timedelta(hours=1), key="waiting")(1)
    for execution in (running, waiting):
        await docket.cancel(execution.key)
        with pytest.raises(ExecutionCancelled):
            await execution.get_result(timeout=WAIT_LIMIT)
    await close(events)
    assert [info.name for info in await docket.workers()]


async def close(events: AsyncIterator[object]) -> None:
    await events.aclose()  # type: ignore[attr-defined]


async def connections(servers: list[Server]) -> int:
    return sum(len(server.run("CLIENT", "LIST").splitlines()) for server in servers)


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
async def test_a_thousand_calls_at_once_need_a_handful_of_connections_there_too(harness: Harness, kind: str) -> None:
    with place(harness, kind) as url:
        servers = [server for server in harness.servers if server is not harness.servers[-1] or kind == "cluster"]
        idle = await connections(servers)
        docket = await harness.docket(url=url)

        async def echo(n: int) -> int:
            return n

        most = 0
        async with working(await harness.worker(docket, concurrency=1000)):

            async def call(n: int) -> int:
                return await (await docket.add(echo)(n)).get_result(timeout=WAIT_LIMIT)

            calls = [asyncio.create_task(call(n)) for n in range(1000)]
            while not all(task.done() for task in calls):
                most = max(most, await connections(servers) - idle)
                await asyncio.sleep(0.02)
            assert [task.result() for task in calls] == list(range(1000))
        assert 0 < most <= 24, most


async def test_a_cluster_that_is_down_for_a_while_costs_no_running_task(harness: Harness) -> None:
    nodes = cluster_of(harness)
    url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
    docket = await harness.docket(url=url)
    counted = CountedTasks(docket)
    slot = nodes[0].run("CLUSTER", "KEYSLOT", docket.stream_key)
    owner = nodes[min(slot * NODES // SLOTS, NODES - 1)]
    bystander = next(node for node in nodes if node is not owner)
    async with working(await harness.worker(docket)):
        running = await counted.hold("running")
        bystander.kill()
        await eventually(lambda: not is_whole(owner), "the cluster is down")
        with pytest.raises(ServerUnreachable):
            await counted.add("refused")
        bystander.start()
        await counted.works("after")
        counted.release.set()
        assert await running.get_result(timeout=WAIT_LIMIT) == "running"
    assert counted.starts["running"] == 1
    assert counted.cancelled == {}


async def test_work_goes_on_after_a_sentinel_has_failed_over(harness: Harness) -> None:
    master, replica, sentinel = sentinel_of(harness)
    await eventually(lambda: is_in_sync(replica), "the replica has everything")
    await eventually(lambda: knows_replica(sentinel), "the sentinel knows it")
    docket = await harness.docket(url=f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0")
    counted = CountedTasks(docket)
    async with working(await harness.worker(docket)):
        running = await counted.hold("running")
        await counted.works("before")
        await eventually(lambda: is_in_sync(replica), "the replica has everything")
        master.kill()
        await counted.works("after")
        counted.release.set()
        assert await running.get_result(timeout=WAIT_LIMIT) == "running"
    assert counted.starts["running"] == 1
    assert replica.run("ROLE")[0] == b"master"


def is_in_sync(replica: Server) -> bool:
    with replica.client() as client:
        info = client.info("replication")
    return info.get("master_link_status") == "up"


def knows_replica(sentinel: Server) -> bool:
    return len(sentinel.run("SENTINEL", "REPLICAS", "main")) == 1
