"""The pages of the dashboard with a million waiting tasks and a hundred thousand dead letters."""

import logging
import time
from datetime import timedelta
from typing import Annotated

import httpx
import pytest

from docket import Docket, Logged, Worker
from docket.web import app

MILLION = 1_000_000
LETTERS = 100_000
REPEATS = 20
PAGES = (
    *("now", "tasks", "tasks?q=state:ready", "tasks?q=function:note+contains:99999", "tasks?q=number:77"),
    *("schedule", "functions", "functions?name=note", "dead", "dead?function=break_down", "workers", "limits"),
    *("rules", "audit", "task?key=task-500000", "tasks?q=state:finished", "tasks?q=state:failed+contains:99"),
)


async def note(number: Annotated[int, Logged]) -> None: ...


async def break_down(number: Annotated[int, Logged]) -> None:
    raise RuntimeError("it broke")


async def test_every_page_answers_with_a_million_waiting_tasks(docket: Docket, monkeypatch: pytest.MonkeyPatch) -> None:
    # A hundred thousand tracebacks in the log would be all that this test measures.
    monkeypatch.setattr(logging.getLogger("docket"), "disabled", True)
    monkeypatch.setattr(logging.getLogger("docket.worker"), "disabled", True)
    docket.register(note)
    docket.register(break_down)
    for start in range(0, LETTERS, 20_000):
        await docket.add_many(docket.call(break_down)(n) for n in range(start, start + 20_000))
    async with Worker(docket, concurrency=200) as worker:
        await worker.run_until_finished()
    tomorrow = docket.now() + timedelta(hours=5)
    for start in range(0, MILLION, 50_000):
        numbers = range(start, start + 50_000)
        await docket.add_many(
            docket.call(note, when=tomorrow + timedelta(milliseconds=n) if n % 2 else None, key=f"task-{n}")(n)
            for n in numbers
        )
    counts = await docket.ledger.queries.census()
    assert (counts.unfinished, counts.dead) == (MILLION, LETTERS)
    transport = httpx.ASGITransport(app(docket, guard=None))
    async with httpx.AsyncClient(transport=transport, base_url="http://dashboard") as browser:
        start = (await browser.get("/")).headers["location"].removesuffix("now")
        print(f"\n{'page':45} {'p50':>8} {'p95':>8} {'most':>8} {'bytes':>9}")
        for page in PAGES:
            times: list[float] = []
            size = 0
            for _ in range(REPEATS):
                began = time.perf_counter()
                answer = await browser.get(start + page)
                times.append((time.perf_counter() - began) * 1000)
                assert answer.status_code == 200, page
                size = len(answer.content)
            times.sort()
            p50, p95 = times[REPEATS // 2], times[int(REPEATS * 0.95) - 1]
            print(f"{page:45} {p50:6.0f}ms {p95:6.0f}ms {times[-1]:6.0f}ms {size:9,}")
