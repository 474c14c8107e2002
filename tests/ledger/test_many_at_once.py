"""However much falls due or waits, no single call holds the server for long: each has a bound."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from docket.ledger.tasks import BATCH
from docket.storage.keys import text_bytes

from .ledger_client import LedgerClient, completed, new_task

MANY = 50_000


@contextmanager
def script_times(ledger_client: LedgerClient, what: str) -> Iterator[None]:
    """Prints what the scripts cost the server; for people, who know how fast their machine is."""
    ledger_client.client.config_resetstat()
    before = cpu_seconds(ledger_client)
    yield
    spent = cpu_seconds(ledger_client) - before
    stats = ledger_client.client.info("commandstats")
    calls = sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))
    print(f"\n{what}: {calls} calls, {1000 * spent / calls:.2f} ms of CPU each")


def cpu_seconds(ledger_client: LedgerClient) -> float:
    info = ledger_client.client.info("cpu")
    return info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]


async def fill(ledger_client: LedgerClient, count: int, **options: Any) -> list[str]:
    keys = [f"k{n:05}" for n in range(count)]
    for start in range(0, count, BATCH):
        await ledger_client.ledger.tasks.enqueue(
            [new_task(key, fresh=True, **options) for key in keys[start : start + BATCH]]
        )
    return keys


async def test_fifty_thousand_tasks_due_at_one_moment_are_moved_in_bounded_steps_and_in_order(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    with script_times(ledger_client, "enqueue 500, scheduled"):
        keys = await fill(ledger_client, MANY, due_ms=ledger_client.later())
    # In an order of time that is not the order of their names.
    random.Random(1).shuffle(keys)
    ledger_client.client.zadd(ledger_client.ledger.keys.schedule, {text_bytes(key): n for n, key in enumerate(keys)})

    moved: list[int] = []
    with script_times(ledger_client, "stage 500"):
        while (step := await ledger_client.ledger.tasks.stage())[0]:
            moved.append(step[0])
    assert step[2] is None
    assert max(moved) == BATCH
    assert sum(moved) == MANY

    with script_times(ledger_client, "take 500"):
        batches = [await ledger_client.take(worker, 100_000) for _ in range(10)]
    assert [len(batch) for batch in batches] == [BATCH] * 10
    taken = [run.key for batch in batches for run in batch]
    assert taken == keys[: len(taken)]
    with script_times(ledger_client, "settle 500"):
        for batch in batches:
            await ledger_client.settle(*(completed(run, has_progress=False) for run in batch))
    assert await ledger_client.ledger.queries.unfinished() == MANY - len(taken)


async def test_pages_clear_and_sweep_go_in_bounded_steps(ledger_client: LedgerClient) -> None:
    count = 10_000
    await fill(ledger_client, count)
    with script_times(ledger_client, "find_tasks"):
        pages = [len(page) async for page in ledger_client.ledger.queries.all()]
    assert sum(pages) >= count
    assert max(pages) <= 2 * BATCH
    with script_times(ledger_client, "sweep 500"):
        looked_at = [ledger_client.ledger.fleet.sweep(ledger_client.client, 500, 0)[0] for _ in range(20)]
    assert max(looked_at) <= 2 * 500
    with script_times(ledger_client, "clear 200"):
        assert await ledger_client.ledger.tasks.clear() == count
    stats = ledger_client.client.info("commandstats")
    assert stats["cmdstat_hscan"]["calls"] >= count / 400
    assert not ledger_client.stored_state().tasks


async def test_adding_taking_and_settling_cost_the_same_however_much_waits(ledger_client: LedgerClient) -> None:
    """The same commands on the server, and none whose
    cost grows with the size of what it looks at."""
    worker = await ledger_client.hire()
    await commands_of_one_task(ledger_client, worker)
    before = await commands_of_one_task(ledger_client, worker)
    for start in range(0, 5_000, BATCH):
        numbers = range(start, start + BATCH)
        await ledger_client.ledger.tasks.enqueue(
            [new_task(f"later {n}", fresh=True, due_ms=ledger_client.later()) for n in numbers]
        )
        await ledger_client.ledger.tasks.enqueue([new_task(f"ready {n}", fresh=True) for n in numbers])
        await ledger_client.take(worker, BATCH)
    assert await commands_of_one_task(ledger_client, worker) == before
    assert not {"hgetall", "hkeys", "smembers", "keys", "scan", "hscan", "zrangebyscore"} & set(before)


async def commands_of_one_task(ledger_client: LedgerClient, worker: str) -> dict[str, int]:
    ledger_client.client.config_resetstat()
    await ledger_client.add("one")
    (run,) = await ledger_client.take(worker, 1)
    await ledger_client.settle(completed(run))
    stats = ledger_client.client.info("commandstats")
    names = {name: name.removeprefix("cmdstat_") for name in stats}
    return {names[n]: row["calls"] for n, row in stats.items() if not names[n].startswith(("config", "info"))}
