"""Whether the counters add up, and the gauges tell the truth."""

import asyncio
import urllib.request
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from docket import Docket, Perpetual, Retry, Worker
from docket.instrumentation import TASKS_ADDED, TASKS_STARTED, metrics_server
from tests.waiting import eventually

from .metric_totals import MetricTotals


async def test_the_books_balance_after_a_chaotic_run(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = MetricTotals(monkeypatch, "balance")

    async def flaky(number: int, retry: Retry = Retry(attempts=3)) -> None:
        if number % 3 == 0:
            raise ValueError(number)

    async def chain(perpetual: Perpetual = Perpetual()) -> None: ...

    async def slow() -> None:
        await asyncio.sleep(0.05)

    begun, go_on = asyncio.Event(), asyncio.Event()

    async def held() -> None:
        begun.set()
        await go_on.wait()

    async with Docket(name="balance", url=f"memory://{uuid4()}") as docket:
        await docket.add_many(docket.call(flaky, key=f"f{n}")(n) for n in range(60))
        await docket.add_many(
            docket.call(flaky, key=f"f{n}")(n) for n in range(10)
        )  # known keys: added, not scheduled again
        await docket.add(chain, key="chain")()
        await docket.add(held, key="held")()
        for n in range(10):
            await docket.add(slow, key=f"s{n}")()
        later = datetime.now(UTC) + timedelta(hours=1)
        for n in range(8):
            await docket.add(slow, when=later, key=f"later{n}")()
        for n in range(4):
            await docket.replace(slow, later, f"later{n}")()
            await docket.cancel(f"later{n + 4}")

        async def most_have_ended() -> bool:
            return (await docket.ledger.queries.census()).unfinished <= 4

        async with Worker(docket, concurrency=5, name="a") as first, Worker(docket, concurrency=5, name="b") as second:
            first_working = asyncio.create_task(first.run_at_most({"chain": 5}))
            second_working = asyncio.create_task(second.run_forever())
            await begun.wait()
            for n in range(5, 10):
                await docket.cancel(f"s{n}")
            await docket.replace(slow, datetime.now(UTC), "held")()
            go_on.set()
            await eventually(most_have_ended, "all but four tasks have ended")
            await docket.cancel("chain")
            for working in (first_working, second_working):
                working.cancel()
                await working
        waiting = (await docket.ledger.queries.census()).unfinished
        ended = totals["succeeded"] + totals["failed"] - totals["retried"] - totals["perpetuated"]
        taken_out = 5  # four that waited, and "held"
        assert totals["scheduled"] == ended + totals["cancelled"] + waiting + taken_out
        assert totals.superseded == {"worker": 1}
        assert totals["added"] == 90
        assert totals["added"] + totals["replaced"] - totals["scheduled"] == 10
        assert totals["started"] == totals["completed"] == totals.measured
        assert totals["running"] == 0


async def test_prometheus_is_served_without_any_set_up_of_opentelemetry() -> None:
    async def work() -> None: ...

    async with Docket(name="prom", url=f"memory://{uuid4()}") as docket:
        with metrics_server("127.0.0.1", 0) as port:
            assert port is not None
            for _ in range(3):
                await docket.add(work)()
            await docket.add(work, when=datetime.now(UTC) + timedelta(hours=1))()

            async def all_is_shown() -> bool:
                figures = await _scrape(port)
                return "docket_queue_depth" in figures and figures.get("docket_tasks_completed_total", 0) >= 3

            async with Worker(docket, name="w") as worker:
                working = asyncio.create_task(worker.run_forever())
                await eventually(all_is_shown, "the depth and three completed tasks are shown")
                shown = await _scrape(port)
                working.cancel()
                await working
    assert shown["docket_tasks_added_total"] == 4
    assert shown["docket_schedule_depth"] == 1
    assert shown["docket_tasks_running"] == 0
    assert shown["docket_dead_letters"] == 0


async def test_tasks_that_wait_for_a_worker_that_knows_them_are_shown() -> None:
    async def unheard_of() -> None: ...

    url = f"memory://{uuid4()}"
    async with Docket(name="prom", url=url) as docket, Docket(name="prom", url=url) as ignorant:
        with metrics_server("127.0.0.1", 0) as port:
            assert port is not None
            await docket.add(unheard_of)()

            async def task_is_shown() -> bool:
                return (await _scrape(port)).get("docket_unknown_function_tasks") == 1

            async with Worker(ignorant) as worker:
                working = asyncio.create_task(worker.run_forever())
                await eventually(task_is_shown, "the task with the unknown function is shown")
                assert (await _scrape(port))["docket_queue_depth"] == 0, "no further worker of this kind would help"
                working.cancel()
                await working


async def _scrape(port: int) -> dict[str, float]:
    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return answer.read().decode()

    values: dict[str, float] = {}
    for line in (await asyncio.to_thread(get)).splitlines():
        if 'docket_name="prom"' in line:
            name, _, value = line.partition("{")[0], None, line.rpartition(" ")[2]
            values[name] = values.get(name, 0) + float(value)
    return values


async def test_a_function_that_is_put_in_place_of_a_counters_own_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    monkeypatch.setattr(TASKS_ADDED, "add", lambda amount, labels: counted.append("added"))
    monkeypatch.setattr(TASKS_STARTED, "add", lambda amount, labels: counted.append("started"))

    async def work() -> None: ...

    async with Docket(name="patched", url=f"memory://{uuid4()}") as docket, Worker(docket) as worker:
        await docket.add(work)()
        await worker.run_until_finished()

    assert counted == ["added", "started"]
