"""Whether the counters add up, and the gauges tell the truth."""

import asyncio
import urllib.request
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from docket import Docket, Perpetual, Retry, Worker
from docket.instrumentation import instruments as metrics
from docket.instrumentation import metrics_server


class Books:
    """What was counted, by instrument, for one docket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, docket: str) -> None:
        self.counted: dict[str, float] = {}
        for instrument in metrics.instruments():
            monkeypatch.setattr(instrument, "mirror", self._mirror(instrument.name, docket))

    def _mirror(self, name: str, docket: str):
        def note(amount: float, attributes) -> None:
            if attributes.get("docket.name") == docket:
                where = attributes.get("docket.where", "")
                key = f"{name}@{where}" if where else name
                self.counted[key] = self.counted.get(key, 0) + amount

        return note

    def __getitem__(self, name: str) -> float:
        return self.counted.get(f"docket_tasks_{name}", 0)


async def test_the_books_balance_after_a_chaotic_run(monkeypatch: pytest.MonkeyPatch) -> None:
    books = Books(monkeypatch, "balance")

    async def flaky(number: int, retry: Retry = Retry(attempts=3)) -> None:
        if number % 3 == 0:
            raise ValueError(number)

    async def chain(perpetual: Perpetual = Perpetual()) -> None: ...

    async def slow() -> None:
        await asyncio.sleep(0.05)

    async with Docket(name="balance", url=f"memory://{uuid4()}") as docket:
        await docket.add_many(docket.call(flaky, key=f"f{n}")(n) for n in range(60))
        await docket.add_many(
            docket.call(flaky, key=f"f{n}")(n) for n in range(10)
        )  # known keys: added, not scheduled again
        await docket.add(chain, key="chain")()
        for n in range(10):
            await docket.add(slow, key=f"s{n}")()
        later = datetime.now(UTC) + timedelta(hours=1)
        for n in range(8):
            await docket.add(slow, when=later, key=f"later{n}")()
        for n in range(4):
            await docket.replace(slow, later, f"later{n}")()
            await docket.cancel(f"later{n + 4}")
        async with Worker(docket, concurrency=5, name="a") as first, Worker(docket, concurrency=5, name="b") as second:
            first_working = asyncio.create_task(first.run_at_most({"chain": 5}))
            second_working = asyncio.create_task(second.run_forever())
            await asyncio.sleep(0.02)
            await docket.cancel("s9")
            await docket.replace(slow, datetime.now(UTC), "s8")()
            while (await docket.ledger.census()).unfinished > 4:
                await asyncio.sleep(0.01)
            await docket.cancel("chain")
            for working in (first_working, second_working):
                working.cancel()
                await working
        waiting = (await docket.ledger.census()).unfinished
        ended = books["completed"] - books["retried"] - books["perpetuated"]
        superseded = books["superseded@docket"]
        assert books["scheduled"] == ended + books["cancelled"] + waiting + superseded
        assert books["added"] == 89
        assert books["added"] + books["replaced"] - books["scheduled"] == 10
        assert books["completed"] == books["succeeded"] + books["failed"]
        assert books["running"] == 0


async def test_prometheus_is_served_without_any_set_up_of_opentelemetry() -> None:
    async def work() -> None: ...

    async with Docket(name="prom", url=f"memory://{uuid4()}") as docket:
        with metrics_server("127.0.0.1", 0) as port:
            for _ in range(3):
                await docket.add(work)()
            await docket.add(work, when=datetime.now(UTC) + timedelta(hours=1))()
            async with Worker(docket, name="w") as worker:
                working = asyncio.create_task(worker.run_forever())
                async with asyncio.timeout(90):
                    while not {"docket_queue_depth", "docket_tasks_completed_total"} <= set(await _scrape(port)):
                        await asyncio.sleep(0.02)
                    while (await _scrape(port))["docket_tasks_completed_total"] < 3:
                        await asyncio.sleep(0.02)
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
            await docket.add(unheard_of)()
            async with Worker(ignorant) as worker:
                working = asyncio.create_task(worker.run_forever())
                async with asyncio.timeout(90):
                    while (await _scrape(port)).get("docket_unknown_function_tasks") != 1:
                        await asyncio.sleep(0.02)
                assert (await _scrape(port))["docket_queue_depth"] == 0, "no further worker of this kind would help"
                working.cancel()
                await working


async def _scrape(port: int) -> dict[str, float]:
    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()

    values: dict[str, float] = {}
    for line in (await asyncio.to_thread(get)).splitlines():
        if 'docket_name="prom"' in line:
            name, _, value = line.partition("{")[0], None, line.rpartition(" ")[2]
            values[name] = values.get(name, 0) + float(value)
    return values
