"""A great many tasks at once (rows B14, B15)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from docket import CurrentExecution, Docket, Execution
from tests.waiting import eventually

from .conftest import Harness
from .counted_tasks import working
from .servers import Server


async def nothing() -> None: ...


def commands(server: Server) -> Counter[str]:
    """How often the server has run each command, those inside of scripts included."""
    with server.client() as client:
        found: dict[str, Any] = client.info("commandstats")
    # Connections also greet and ping, whenever it is time.
    others = ("info", "ping", "hello", "client", "select", "subscribe")
    calls = {name.removeprefix("cmdstat_"): row["calls"] for name, row in found.items()}
    return Counter({name: count for name, count in calls.items() if not name.startswith(others)})


async def cost_of_one(server: Server, docket: Docket, worker: str) -> Counter[str]:
    """The commands that one task costs: adding it, taking it, and settling what was taken."""
    before = commands(server)
    await docket.add(nothing)()
    await docket.ledger.deliveries.take(worker, '"worker"', 1)
    return commands(server) - before


@pytest.mark.timeout(600)
async def test_adding_and_taking_cost_the_same_however_many_wait(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket()
    await docket.ledger.fleet.register("worker~1", 600_000, ["nothing"])
    # The first of all creates stream and group, and the scripts are loaded.
    await cost_of_one(server, docket, "worker~1")
    empty = await cost_of_one(server, docket, "worker~1")
    later = datetime.now(UTC) + timedelta(hours=1)
    await docket.add_many(docket.call(nothing, later)() for _ in range(50_000))
    await docket.add_many(docket.call(nothing)() for _ in range(50_000))
    full = await cost_of_one(server, docket, "worker~1")
    assert full == empty

    # Nothing that looks at all of it does so in one go.
    before = commands(server)
    assert await docket.clear() == 100_000
    assert (commands(server) - before)["hscan"] > 200


@pytest.mark.timeout(600)
async def test_fifty_thousand_tasks_due_at_one_moment_hold_up_nobody(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket()
    ran = 0

    async def count() -> None:
        nonlocal ran
        ran += 1

    async def ran_before() -> int:
        return ran

    when = datetime.now(UTC) + timedelta(hours=1)
    await docket.add_many(docket.call(count, when)() for _ in range(50_000))
    # As if that moment had come: all of them are due now.
    move_queue(server, docket, -3_660_000)
    server.run("CONFIG", "RESETSTAT")
    with server.client() as client:
        before = cpu_seconds(client)
    async with working(await harness.worker(docket, concurrency=100)):
        probe = await docket.add(ran_before)()
        assert await probe.get_result(timeout=timedelta(minutes=5)) < 50_000, "it need not wait for all of them"
        await eventually(lambda: all_staged(server, docket), "all of them are staged")
        await eventually(lambda: ran > 1000, "and run")
        with server.client() as client:
            stats: dict[str, Any] = client.info("commandstats")
            spent = cpu_seconds(client) - before
        assert stats["cmdstat_zrem"]["calls"] >= 100, "in batches of at most five hundred"
        # The server's own time, since on a busy machine
        # the clock on the wall counts others' work, too.
        assert spent / stats["cmdstat_evalsha"]["calls"] < 0.010, "a few milliseconds for each script"
        await docket.clear()


def cpu_seconds(client: Any) -> float:
    used: dict[str, Any] = client.info("cpu")
    return used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"]


def move_queue(server: Server, docket: Docket, milliseconds: int) -> None:
    script = """
        for _, key in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('ZINCRBY', KEYS[1], ARGV[1], key) end
    """
    server.run("EVAL", script, 1, docket.queue_key, milliseconds)


def all_staged(server: Server, docket: Docket) -> bool:
    return server.run("ZCARD", docket.queue_key) == 0


async def test_tasks_that_fall_due_together_run_in_the_order_of_their_times(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket()
    order: list[int] = []

    async def note(n: int, execution: Execution = CurrentExecution()) -> None:
        order.append(n)

    start = datetime.now(UTC) + timedelta(hours=1)
    calls = [docket.call(note, start + timedelta(milliseconds=n))(n) for n in range(300)]
    await docket.add_many(reversed(calls))
    # As if an hour and a minute had passed: all of them are due now.
    move_queue(server, docket, -3_660_000)
    async with working(await harness.worker(docket, concurrency=1)):
        await eventually(lambda: len(order) == 300, "all have run")
    assert order == sorted(order)
