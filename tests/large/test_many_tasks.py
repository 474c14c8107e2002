"""A great many tasks that wait: nothing that is done
to one of them costs more because of the others."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from datetime import timedelta

from docket import Docket, ExecutionState
from docket.ledger import finish
from docket.ledger.endings import Ending, ending_event

from .conftest import commands

MILLION = 1_000_000
WORKER = "worker~1"


async def note(number: int, text: str = "") -> None: ...


async def cost_of_one(docket: Docket) -> Counter[str]:
    """The commands that one task costs: it is added, claimed and
    settled, and another is scheduled, moved and cancelled."""
    before = await commands(docket)
    await docket.add(note, key="one")(1)
    [run] = await docket.ledger.deliveries.take(WORKER, '"worker"', 1) or []
    event = ending_event(ExecutionState.COMPLETED, '"worker"', 0)
    ending = finish(run.key, run.epoch, ExecutionState.COMPLETED, 900_000, Ending("worker").pack(), event)
    await docket.ledger.tasks.settle([ending])
    later = docket.now() + timedelta(days=2)
    await docket.add(note, when=later, key="later")(1)
    await docket.replace(note, when=later + timedelta(days=1), key="later")(2)
    await docket.cancel("later")
    return await commands(docket) - before


async def test_adding_claiming_and_settling_cost_the_same_with_a_million_waiting_tasks(docket: Docket) -> None:
    docket.register(note)
    await docket.ledger.fleet.register(WORKER, 7_200_000, ["note"])
    # The first of all creates stream and group, and the scripts are loaded.
    await cost_of_one(docket)
    empty = await cost_of_one(docket)
    began = time.monotonic()
    tomorrow = docket.now() + timedelta(days=1)
    for start in range(0, MILLION, 50_000):
        numbers = range(start, start + 50_000)
        await docket.add_many(docket.call(note, when=tomorrow if n % 2 else None)(n) for n in numbers)
    print(f"\n{MILLION:,} tasks added in {time.monotonic() - began:.0f} s")
    assert (await docket.ledger.queries.census()).unfinished == MILLION
    full = await cost_of_one(docket)
    # Fewer events: with an empty schedule, each new
    # task is the next one, of which the stager is told.
    assert not full - empty
    # Nothing that looks at all of it does so in one go.
    before, began = await commands(docket), time.monotonic()
    assert await docket.clear() == MILLION
    pages = (await commands(docket) - before)["hscan"]
    print(f"cleared in {pages:,} pages, {time.monotonic() - began:.0f} s")
    assert pages > MILLION / 1000


async def test_a_snapshot_of_a_hundred_thousand_waiting_tasks_is_taken_in_pages(docket: Docket) -> None:
    docket.register(note)
    now = docket.now()
    calls = (
        docket.call(note, when=now + timedelta(seconds=i + 60) if i % 2 else None, key=f"k{i:06}")(i, text="x" * 50)
        for i in range(100_000)
    )
    await docket.add_many(calls)
    before = await commands(docket)
    snapshot = await docket.snapshot()
    spent = await commands(docket) - before
    assert snapshot.total_tasks == len(snapshot.future) == 100_000
    assert snapshot.future[0].state is ExecutionState.QUEUED
    assert snapshot.future[-1].args == (99_999,)
    # Each script looks at about five hundred tasks.
    print(f"\n{spent['evalsha']} scripts, {spent['hscan']} pages")
    assert 100 <= spent["hscan"] <= 1000
    assert spent.total() < 5_000, "the commands do not grow with the tasks of a page"
    del snapshot

    tracemalloc.start()
    snapshot = await docket.snapshot()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{held / 100_000:.0f} bytes for a task")
    # Key, record and due time: the arguments of each task are about 85 bytes.
    assert held < 100_000 * 700
    assert snapshot.total_tasks == 100_000
