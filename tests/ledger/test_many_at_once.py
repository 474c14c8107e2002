"""However much falls due or waits, no single call holds the server for long: each has a bound."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from docket.ledger.queries import Query, find_all
from docket.ledger.tasks import BATCH
from docket.storage.keys import text_bytes

from .desk import Desk, completed, order

MANY = 50_000


@contextmanager
def script_times(desk: Desk, what: str) -> Iterator[None]:
    """Prints what the scripts cost the server; for people, who know how fast their machine is."""
    desk.client.config_resetstat()
    before = cpu_seconds(desk)
    yield
    spent = cpu_seconds(desk) - before
    stats = desk.client.info("commandstats")
    calls = sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))
    print(f"\n{what}: {calls} calls, {1000 * spent / calls:.2f} ms of CPU each")


def cpu_seconds(desk: Desk) -> float:
    info = desk.client.info("cpu")
    return info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]


async def fill(desk: Desk, count: int, **options: Any) -> list[str]:
    keys = [f"k{n:05}" for n in range(count)]
    for start in range(0, count, BATCH):
        await desk.ledger.enqueue([order(key, fresh=True, **options) for key in keys[start : start + BATCH]])
    return keys


async def test_fifty_thousand_tasks_due_at_one_moment_are_moved_in_bounded_steps_and_in_order(desk: Desk) -> None:
    worker = await desk.hire()
    with script_times(desk, "enqueue 500, scheduled"):
        keys = await fill(desk, MANY, due_ms=desk.later())
    # In an order of time that is not the order of their names.
    random.Random(1).shuffle(keys)
    desk.client.zadd(desk.ledger.keys.queue, {text_bytes(key): n for n, key in enumerate(keys)})

    moved: list[int] = []
    with script_times(desk, "stage 500"):
        while (step := await desk.ledger.stage())[0]:
            moved.append(step[0])
    assert step[2] is None
    assert max(moved) == BATCH
    assert sum(moved) == MANY

    with script_times(desk, "take 500"):
        batches = [await desk.take(worker, 100_000) for _ in range(10)]
    assert [len(batch) for batch in batches] == [BATCH] * 10
    taken = [run.key for batch in batches for run in batch]
    assert taken == keys[: len(taken)]
    with script_times(desk, "settle 500"):
        for batch in batches:
            await desk.settle(*(completed(run, has_progress=False) for run in batch))
    assert await desk.ledger.unfinished() == MANY - len(taken)


async def test_pages_clear_and_sweep_go_in_bounded_steps(desk: Desk) -> None:
    count = 10_000
    await fill(desk, count)
    with script_times(desk, "page"):
        pages = [len(page) async for page in find_all(desk.ledger, Query())]
    assert sum(pages) >= count
    assert max(pages) <= 2 * BATCH
    with script_times(desk, "sweep 500"):
        looked_at = [desk.ledger.sweep(desk.client, 500, 0)[0] for _ in range(20)]
    assert max(looked_at) <= 2 * 500
    with script_times(desk, "clear 200"):
        assert await desk.ledger.clear() == count
    stats = desk.client.info("commandstats")
    assert stats["cmdstat_hscan"]["calls"] >= count / 400
    assert not desk.books().tasks


async def test_adding_taking_and_settling_cost_the_same_however_much_waits(desk: Desk) -> None:
    """The same commands on the server, and none whose cost grows with the size of what it looks at."""
    worker = await desk.hire()
    await commands_of_one_task(desk, worker)
    before = await commands_of_one_task(desk, worker)
    for start in range(0, 5_000, BATCH):
        numbers = range(start, start + BATCH)
        await desk.ledger.enqueue([order(f"later {n}", fresh=True, due_ms=desk.later()) for n in numbers])
        await desk.ledger.enqueue([order(f"ready {n}", fresh=True) for n in numbers])
        await desk.take(worker, BATCH)
    assert await commands_of_one_task(desk, worker) == before
    assert not {"hgetall", "hkeys", "smembers", "keys", "scan", "hscan", "zrangebyscore"} & set(before)


async def commands_of_one_task(desk: Desk, worker: str) -> dict[str, int]:
    desk.client.config_resetstat()
    await desk.add("one")
    (run,) = await desk.take(worker, 1)
    await desk.settle(completed(run))
    stats = desk.client.info("commandstats")
    names = {name: name.removeprefix("cmdstat_") for name in stats}
    return {names[n]: row["calls"] for n, row in stats.items() if not names[n].startswith(("config", "info"))}
