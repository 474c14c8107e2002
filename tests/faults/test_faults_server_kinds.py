"""The same small life on every kind of server, and
what is special to clusters and sentinels (row B5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from redis.exceptions import RedisError

from docket import CurrentExecution, Docket, Execution, ExecutionCancelled, ExecutionState
from docket.errors import ServerUnreachable
from docket.storage import subscriptions
from docket.storage.client.node_watch import NodeWatch, SentinelWatch
from docket.storage.client.pipeline import Pipeline
from docket.testing.servers import Cluster, Sentinels, ServerProcess
from tests.waiting import SECONDS, WAIT_LIMIT, eventually

from .conftest import Harness
from .counted_tasks import CountedTasks, working


def cluster_of(harness: Harness) -> Cluster:
    """Three nodes without replicas, each with a third of the slots."""
    return harness.group(Cluster("--appendonly", "yes", replicas=0))


def sentinel_of(harness: Harness) -> Sentinels:
    """A master, a replica and a sentinel that watches them."""
    return harness.group(Sentinels(replicas=1, sentinels=1))


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
        yield cluster_of(harness).url
    else:
        yield sentinel_of(harness).url


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


async def connections(servers: Sequence[ServerProcess]) -> int:
    return sum(len(server.run("CLIENT", "LIST").splitlines()) for server in servers)


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
async def test_a_thousand_calls_at_once_need_a_handful_of_connections_there_too(harness: Harness, kind: str) -> None:
    with place(harness, kind) as url:
        group = harness.groups[-1]
        servers = group.data_servers if isinstance(group, Sentinels) else group.servers
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
    cluster = cluster_of(harness)
    docket = await harness.docket()
    counted = CountedTasks(docket)
    owner = cluster.owner(cluster.slot(docket.stream_key))
    bystander = next(node for node in cluster.nodes if node is not owner)
    async with working(await harness.worker(docket)):
        running = await counted.hold("running")
        bystander.kill()
        await eventually(lambda: not cluster.serves(owner), "the cluster is down")
        with pytest.raises(ServerUnreachable):
            await counted.add("refused")
        bystander.start()
        await counted.works("after")
        counted.release.set()
        assert await running.get_result(timeout=WAIT_LIMIT) == "running"
    assert counted.starts["running"] == 1
    assert counted.cancelled == {}


def is_replica(server: ServerProcess) -> bool:
    try:
        return server.run("ROLE")[0] == b"slave"
    except RedisError:
        # The sentinels cut its clients off when they make it a replica.
        return False


@pytest.mark.parametrize(
    ("kind", "other_watch"),
    [("sentinel", SentinelWatch), ("sentinel", NodeWatch), ("cluster", None)],
    ids=["sentinel, asked", "sentinel, heard", "cluster"],
)
async def test_a_primary_that_falls_silent_is_left_for_the_one_that_takes_over(
    harness: Harness, kind: str, other_watch: type | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection breaks, and here no request times out by itself."""
    if other_watch is not None:
        monkeypatch.setattr(other_watch, "start", lambda watch, stack: None)
    monkeypatch.setattr(Pipeline, "_check_deadline", lambda pipeline, late=False: None)
    monkeypatch.setattr(subscriptions, "SILENCE_SECONDS", SECONDS)
    if kind == "sentinel":
        sentinels = harness.group(Sentinels(replicas=1))
        primary, url = sentinels.primary, sentinels.url
    else:
        cluster = harness.group(Cluster())
        primary, url = cluster.owner(cluster.slot(f"{{{harness.name}}}:")), cluster.url
    docket = await harness.docket(url=url)
    counted = CountedTasks(docket)
    async with working(await harness.worker(docket)):
        running = await counted.hold("running")
        await counted.works("before")
        primary.pause()
        await counted.works("after")
        counted.release.set()
        assert await running.get_result(timeout=WAIT_LIMIT) == "running"
        # It comes back, believes for a while that it is the primary, and becomes a replica.
        primary.wake()
        await eventually(lambda: is_replica(primary), "the old primary is a replica")
        await counted.works("much later")
    assert counted.starts["running"] == 1
    assert counted.starts["after"] >= 1


async def test_work_goes_on_after_a_sentinel_has_failed_over(harness: Harness) -> None:
    group = sentinel_of(harness)
    [replica] = group.replicas
    docket = await harness.docket()
    counted = CountedTasks(docket)
    async with working(await harness.worker(docket)):
        running = await counted.hold("running")
        await counted.works("before")
        group.primary.run("SET", "mark", "here")
        await eventually(lambda: replica.run("GET", "mark") == b"here", "the replica has everything")
        group.primary.kill()
        await counted.works("after")
        counted.release.set()
        assert await running.get_result(timeout=WAIT_LIMIT) == "running"
    assert counted.starts["running"] == 1
    assert replica.run("ROLE")[0] == b"master"
