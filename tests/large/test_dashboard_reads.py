"""What the dashboard reads, with a million tasks waiting and a hundred thousand dead letters.
Prints how long each read takes, and what the server spends on it."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Annotated

from docket import Docket, Logged, Worker
from docket.inspection.audit import read_audit
from docket.inspection.census import CensusTaker
from docket.inspection.filters import TaskFilter, read_filter
from docket.inspection.functions import read_functions
from docket.inspection.limits import read_limits
from docket.inspection.rules import read_rules
from docket.inspection.schedule import read_upcoming
from docket.inspection.statistics import read_flow
from docket.inspection.task import read_task_view
from docket.inspection.tasks import TaskPage, count_tasks, find_oldest, find_page
from docket.inspection.workers import read_running, read_worker_views

MILLION, LETTERS, REPEATS = 1_000_000, 100_000, 30
# What a page may take at most, in ms, on a machine that does nothing else.
BAR = 150


async def note(customer: Annotated[int, Logged()], text: str = "") -> None: ...


async def rare(number: int) -> None: ...


async def stumble(number: int) -> None:
    raise LookupError(f"number {number}")


async def server_us(docket: Docket) -> float:
    """What the server has spent on scripts so far, in microseconds."""
    async with docket.redis() as redis:
        found = await redis.info("commandstats")
    rows = [found.get(f"cmdstat_{name}", {"usec": 0}) for name in ("evalsha", "eval")]
    return float(sum(row["usec"] for row in rows))


async def measure(docket: Docket, name: str, read: Callable[[], Awaitable[object]]) -> None:
    await read()
    before, times = await server_us(docket), list[float]()
    for _ in range(REPEATS):
        began = time.perf_counter()
        await read()
        times.append((time.perf_counter() - began) * 1000)
    spent = (await server_us(docket) - before) / REPEATS
    times.sort()
    p50, p95 = times[len(times) // 2], times[int(len(times) * 0.95)]
    verdict = "" if p95 <= BAR else f"   above {BAR} ms"
    print(f"{name:44} p50 {p50:7.1f} ms   p95 {p95:7.1f} ms   server {spent:8.0f} us{verdict}")


async def fill(docket: Docket) -> None:
    began = time.monotonic()
    for start in range(0, LETTERS, 10_000):
        await docket.add_many(docket.call(stumble)(n) for n in range(start, start + 10_000))
    logging.getLogger("docket").setLevel(logging.CRITICAL)
    async with Worker(docket, concurrency=200) as worker:
        await worker.run_until_finished()
    print(f"\n{(await docket.dead.overview()).letters:,} letters in {time.monotonic() - began:.0f} s")
    began, now = time.monotonic(), docket.now()
    for start in range(0, MILLION, 50_000):
        numbers = range(start, start + 50_000)
        await docket.add_many(
            docket.call(
                note if n % 100_000 else rare,
                when=now + timedelta(seconds=n % 172_800) if n % 2 else None,
                key=f"task-{n:07}",
            )(n % 1000)
            for n in numbers
        )
    print(f"{MILLION:,} tasks in {time.monotonic() - began:.0f} s")


async def test_every_read_of_the_dashboard_with_a_million_tasks_and_100_000_letters(docket: Docket) -> None:
    for function in (note, rare, stumble):
        docket.register(function)
    await fill(docket)
    taker = CensusTaker(docket)

    def page(filter: TaskFilter | None, cursor: str | None = None) -> Callable[[], Awaitable[TaskPage]]:
        return lambda: find_page(docket, filter, cursor=cursor)

    second = (await find_page(docket)).cursor
    later = (await find_page(docket, read_filter("state:scheduled"))).cursor
    kinds = (await docket.dead.overview()).kinds
    next_letters = (await docket.dead.page()).cursor
    await docket.ledger.fleet.register("worker~1", 7_200_000, ["note", "rare", "stumble"])
    await measure(docket, "census", taker.take)
    await measure(docket, "flow, one hour", lambda: read_flow(docket))
    await measure(docket, "statistics, one hour", docket.stats)
    await measure(docket, "oldest ready tasks", lambda: find_oldest(docket))
    await measure(docket, "workers", lambda: read_worker_views(docket))
    await measure(docket, "what runs", lambda: read_running(docket))
    await measure(docket, "tasks, first page", page(None))
    await measure(docket, "tasks, second page", page(None, second))
    await measure(docket, "tasks, scheduled, second page", page(read_filter("state:scheduled"), later))
    await measure(docket, "tasks, by key", page(read_filter("key:task-0500000")))
    await measure(docket, "tasks, function that nearly all have", page(read_filter("function:note")))
    await measure(docket, "tasks, function that ten have", page(read_filter("function:rare")))
    await measure(docket, "tasks, argument that one in 1,000 has", page(read_filter("customer:7")))
    await measure(docket, "tasks, part of a key that one has", page(read_filter("0500001")))
    await measure(docket, "tasks, finished", page(read_filter("state:finished")))
    await measure(docket, "count of a filter", lambda: count_tasks(docket, read_filter("customer:7")))
    await measure(docket, "one waiting task", lambda: read_task_view(docket, "task-0500000"))
    await measure(docket, "one scheduled task", lambda: read_task_view(docket, "task-0500001"))
    await measure(docket, "functions", lambda: read_functions(docket))
    await measure(docket, "schedule, 24 hours", lambda: read_upcoming(docket))
    await measure(docket, "dead letters, overview", docket.dead.overview)
    await measure(docket, "dead letters, first page", docket.dead.page)
    await measure(docket, "dead letters, second page", lambda: docket.dead.page(cursor=next_letters))
    await measure(docket, "dead letters, of a kind", lambda: docket.dead.page(kind=kinds[0]))
    await measure(docket, "dead letters, text that one has", lambda: docket.dead.page(text="number 5000"))
    await measure(docket, "limits", lambda: read_limits(docket))
    await measure(docket, "pauses and strikes", lambda: read_rules(docket))
    await measure(docket, "audit", lambda: read_audit(docket))

    # A filter that matches ten of a million is followed to its end, page by page.
    found, pages, cursor = 0, 0, None
    while True:
        some = await find_page(docket, read_filter("function:rare"), cursor=cursor)
        found, pages, cursor = found + len(some.tasks), pages + 1, some.cursor
        if cursor is None:
            break
    print(f"ten of a million tasks in {pages} pages")
    assert found == MILLION // 100_000
    assert some.examined == MILLION
