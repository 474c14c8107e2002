"""A thousand tasks behind one limit: nobody asks whether
it is his turn, and nobody waits longer than he must."""

import asyncio
import statistics
import time

import pytest

from docket import ConcurrencyLimit, Docket
from tests.limits.helpers import assert_nothing_is_left, open_docket, parked
from tests.nodes import command_counts
from tests.running import worker_at_work
from tests.waiting import eventually

TASKS = 1000


async def commands(docket: Docket) -> int:
    """How many commands the server has run, those in scripts included."""
    return (await command_counts(docket)).total()


@pytest.mark.timeout(600)
async def test_a_thousand_tasks_behind_a_limit_of_one_wait_without_a_poll_and_start_promptly_in_order() -> None:
    first_may_end = asyncio.Event()
    began: list[tuple[int, float]] = []
    ended: list[float] = []

    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        began.append((n, time.perf_counter()))
        if n == 0:
            await first_may_end.wait()
        ended.append(time.perf_counter())

    async with open_docket() as docket, worker_at_work(docket, concurrency=50):
        await docket.add(limited)(0)
        await eventually(lambda: began, "the first has begun")
        await docket.add_many([docket.call(limited)(n) for n in range(1, TASKS + 1)])
        await parked(docket, TASKS)

        seconds: list[int] = []
        for _ in range(3):
            before = await commands(docket)
            await asyncio.sleep(1.0)
            seconds.append(await commands(docket) - before)

        before = await commands(docket)
        first_may_end.set()
        await eventually(lambda: len(ended) == TASKS + 1, "all have run")
        await eventually(lambda: _nothing_is_left(docket), "the last one is settled")
        per_task = (await commands(docket) - before) / TASKS
        await assert_nothing_is_left(docket)

    assert [n for n, _ in began] == list(range(TASKS + 1))
    # A second of a worker that has nothing to do: its lease, its look at the others; every ten
    # seconds it sweeps a page of tasks.
    assert min(seconds) < 60, f"{seconds} commands a second while all wait"
    assert per_task < 100, f"{per_task:.1f} commands for each task"
    # Milliseconds where the machine lets them; and never
    # the pause of somebody who looks from time to time.
    waits = sorted(start - end for (_, start), end in zip(began[1:], ended[:-1], strict=True))
    assert waits[TASKS // 10] < 0.02, f"nine of ten wait longer than {waits[TASKS // 10] * 1000:.1f} ms"
    assert statistics.median(waits) < 0.1, f"half of them wait longer than {statistics.median(waits) * 1000:.1f} ms"


async def _nothing_is_left(docket: Docket) -> bool:
    return (await docket.ledger.queries.census()).unfinished == 0
