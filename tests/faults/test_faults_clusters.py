"""Direct delivery on a cluster, and slots that move
to another node while a worker works (row B5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from redis.exceptions import ResponseError

from docket import Docket
from docket.errors import ServerUnreachable
from docket.testing.servers import Cluster, SlotMigration
from tests.waiting import eventually

from .conftest import Harness
from .counted_tasks import CountedTasks, working
from .test_faults_server_kinds import cluster_of


def key_by_key(migration: SlotMigration) -> None:
    migration.run()


def in_one_step(migration: SlotMigration) -> None:
    try:
        migration.run_in_one_step()
    except ResponseError as error:
        pytest.skip(f"this server cannot migrate a slot in one step: {error}")


async def docket_on_a_cluster(harness: Harness) -> tuple[Cluster, Docket, int]:
    cluster = cluster_of(harness)
    docket = await harness.docket(url=cluster.url)
    return cluster, docket, cluster.slot(docket.stream_key)


async def has_offer(docket: Docket) -> bool:
    async with docket.redis() as redis:
        return await redis.zcard(docket.key("offers")) > 0


async def direct_deliveries(docket: Docket) -> object:
    async with docket.redis() as redis:
        return await redis.hgetall(docket.key("last-direct"))


async def is_delivered_directly(docket: Docket, counted: CountedTasks, key: str) -> None:
    """Returns when a new task has reached the worker by a direct delivery."""
    number = 0

    async def delivered() -> bool:
        nonlocal number
        number += 1
        await eventually(lambda: has_offer(docket), "the worker offers a slot")
        before = await direct_deliveries(docket)
        await counted.works(f"{key} {number}")
        return await direct_deliveries(docket) != before

    await eventually(delivered, "a task is delivered directly")


async def test_tasks_are_delivered_directly_on_a_cluster(harness: Harness) -> None:
    _, docket, _ = await docket_on_a_cluster(harness)
    counted = CountedTasks(docket)
    async with working(await harness.worker(docket)):
        await eventually(lambda: has_offer(docket), "the worker offers a slot")
        await counted.works("first")
        assert await direct_deliveries(docket)
    assert counted.starts["first"] == 1


@pytest.mark.parametrize("migrate", [key_by_key, in_one_step])
async def test_a_slot_that_moves_under_load_costs_no_task_and_direct_delivery_follows_it(
    harness: Harness, migrate: Callable[[SlotMigration], None]
) -> None:
    cluster, docket, slot = await docket_on_a_cluster(harness)
    counted = CountedTasks(docket)
    owner = cluster.owner(slot)
    other = next(node for node in cluster.nodes if node is not owner)
    added: list[str] = []
    may_stop, uncertain = asyncio.Event(), 0

    async def produce() -> None:
        nonlocal uncertain
        while not may_stop.is_set():
            key = f"task {len(added)}"
            try:
                await counted.add(key)
            except ServerUnreachable as error:
                uncertain += error.maybe_stored
                continue
            added.append(key)
            await asyncio.sleep(0.002)

    async with working(await harness.worker(docket)):
        running = await counted.hold("running")
        producing = asyncio.create_task(produce())
        for target in (other, owner):
            seen = len(added)
            await eventually(lambda seen=seen: len(added) > seen + 20, "tasks are added")
            await asyncio.to_thread(migrate, SlotMigration(cluster, slot, target))
            seen = len(added)
            await eventually(lambda seen=seen: len(added) > seen + 20, "tasks are added")
        may_stop.set()
        await producing
        await eventually(lambda: all(counted.finished[key] for key in added), "all tasks have run")
        await is_delivered_directly(docket, counted, "afterwards")
        counted.release.set()
        await running.get_result()
    assert uncertain == 0, "a node that is asked has refused, or has answered"
    assert {key: counted.starts[key] for key in added if counted.starts[key] != 1} == {}
    assert counted.starts["running"] == 1
    assert counted.cancelled == {}


async def is_refused(counted: CountedTasks, key: str) -> None:
    """Waits until an `add` ends with the refusal of the server. On a busy machine
    the answer to its last attempt may come too late."""
    for _ in range(10):
        with pytest.raises(ServerUnreachable) as refused:
            await counted.add(key)
        if not refused.value.maybe_stored:
            return
    raise AssertionError("the server never said that it refuses")


async def test_no_script_runs_on_half_a_docket(harness: Harness) -> None:
    """While its keys are on two nodes, both refuse: a script that followed ASK would create keys
    that exist on the other node."""
    cluster, docket, slot = await docket_on_a_cluster(harness)
    counted = CountedTasks(docket)
    target = next(node for node in cluster.nodes if node is not cluster.owner(slot))
    migration = SlotMigration(cluster, slot, target)
    async with working(await harness.worker(docket)):
        running = await counted.hold("running")
        migration.begin()
        migration.move_keys(docket.key("tasks"))
        await is_refused(counted, "refused")
        assert target.run("CLUSTER", "GETKEYSINSLOT", slot, 10) == [docket.key("tasks").encode()]
        migration.move_keys()
        migration.end()
        await counted.works("after")
        counted.release.set()
        await running.get_result()
    assert counted.starts == {"running": 1, "after": 1}
