"""Whether each run that was started is counted once as completed, however it ended."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from docket import ConcurrencyLimit, Docket, Perpetual, RateLimit, Retry, Worker
from docket.dependencies import CompletionHandler, TaskOutcome
from docket.execution import Execution
from docket.instrumentation import instruments
from docket.worker.running import reporter
from tests.waiting import SECONDS

from .metric_totals import MetricTotals


@pytest.fixture
async def docket(monkeypatch: pytest.MonkeyPatch):
    async with Docket(name=f"runs-{uuid4().hex}", url=f"memory://{uuid4()}") as docket:
        yield docket


@pytest.fixture
def totals(monkeypatch: pytest.MonkeyPatch, docket: Docket) -> MetricTotals:
    return MetricTotals(monkeypatch, docket.name)


def assert_balanced(totals: MetricTotals, *, started: int | None = None) -> None:
    assert totals["started"] == totals["completed"] == totals.measured
    assert totals["running"] == 0
    if started is not None:
        assert totals["started"] == started


async def finish(docket: Docket) -> None:
    async with asyncio.timeout(SECONDS):
        async with Worker(docket) as worker:
            await worker.run_until_finished()


async def test_runs_that_a_limit_blocked_count_as_completed(docket: Docket, totals: MetricTotals) -> None:
    async def work(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await asyncio.sleep(0.01)

    for _ in range(3):
        await docket.add(work)()
    await finish(docket)

    assert totals["succeeded"] == 3
    assert_balanced(totals)


async def test_runs_that_a_limit_dropped_count_as_completed(docket: Docket, totals: MetricTotals) -> None:
    async def work(limit: RateLimit = RateLimit(1, per=timedelta(hours=1), drop=True)) -> None: ...

    for _ in range(3):
        await docket.add(work)()
    await finish(docket)

    assert (totals["succeeded"], totals["cancelled"]) == (1, 2)
    assert_balanced(totals, started=3)


async def test_a_cancelled_run_counts_as_completed(docket: Docket, totals: MetricTotals) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    await docket.add(work, key="k")()
    async with Worker(docket) as worker:
        working = asyncio.create_task(worker.run_until_finished())
        await begun.wait()
        await docket.cancel("k")
        await working

    assert totals["cancelled"] == 1
    assert_balanced(totals, started=1)


async def test_a_run_that_a_shutdown_interrupts_counts_as_completed(docket: Docket, totals: MetricTotals) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    await docket.add(work)()
    async with Worker(docket, grace_period=timedelta(0)) as worker:
        working = asyncio.create_task(worker.run_forever())
        await begun.wait()
        worker.stop()
        await working

    assert_balanced(totals, started=1)
    assert totals["succeeded"] == totals["failed"] == totals["cancelled"] == 0


async def test_a_run_whose_behaviour_fails_counts_as_completed(docket: Docket, totals: MetricTotals) -> None:
    class Clumsy(CompletionHandler["Clumsy"]):
        times = 0

        async def __aenter__(self) -> "Clumsy":
            return self

        async def on_complete(self, execution: Execution, outcome: TaskOutcome) -> bool:
            Clumsy.times += 1
            if Clumsy.times == 1:
                raise RuntimeError("clumsy")
            return False

    async def work(clumsy: Clumsy = Clumsy()) -> None: ...

    await docket.add(work)()
    await finish(docket)

    assert totals["succeeded"] == 1
    assert_balanced(totals, started=2)


async def test_tasks_that_never_started_do_not_count_as_completed(docket: Docket, totals: MetricTotals) -> None:
    async def stranger() -> None: ...

    async with Docket(name=docket.name, url=docket.url) as elsewhere:
        await elsewhere.add(stranger)()
    await finish(docket)

    assert totals["failed"] == 1
    assert_balanced(totals, started=0)


async def test_a_retry_that_run_at_most_cuts_off_counts_as_cancelled(docket: Docket, totals: MetricTotals) -> None:
    async def burn(retry: Retry = Retry(attempts=5)) -> None:
        raise ValueError

    await docket.add(burn, key="k")()
    async with Worker(docket) as worker:
        await worker.run_at_most({"k": 2})

    assert (totals["failed"], totals["retried"], totals["cancelled"]) == (1, 1, 1)
    assert_balanced(totals, started=2)


async def test_replacing_a_waiting_task_supersedes_no_run(docket: Docket, totals: MetricTotals) -> None:
    async def work() -> None: ...

    later = datetime.now(UTC) + timedelta(hours=1)
    await docket.add(work, when=later, key="k")()
    await docket.replace(work, datetime.now(UTC), "k")()
    await finish(docket)

    assert totals["replaced"] == 1
    assert totals.superseded == {}


async def _replace_while_it_runs(docket: Docket, task, begun: asyncio.Event, go_on: asyncio.Event) -> None:
    async def replacement() -> None: ...

    await docket.add(task, key="k")()
    async with Worker(docket) as worker:
        working = asyncio.create_task(worker.run_until_finished())
        async with asyncio.timeout(SECONDS):
            await begun.wait()
            await docket.replace(replacement, datetime.now(UTC), "k")()
            go_on.set()
            await working


async def test_a_plain_run_that_was_replaced_is_superseded_in_the_worker(docket: Docket, totals: MetricTotals) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await go_on.wait()

    await _replace_while_it_runs(docket, work, begun, go_on)

    assert totals.superseded == {"worker": 1}
    assert totals["succeeded"] == 1, "the replacement's"
    assert_balanced(totals, started=2)


async def test_a_retry_that_gave_way_to_a_replacement_is_superseded_there(docket: Docket, totals: MetricTotals) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(retry: Retry = Retry(attempts=3)) -> None:
        begun.set()
        await go_on.wait()
        raise ValueError

    await _replace_while_it_runs(docket, work, begun, go_on)

    assert totals.superseded == {"retry": 1}


@pytest.mark.parametrize("stops", [False, True], ids=["going on", "stopping"])
async def test_a_perpetual_that_gave_way_to_a_replacement_is_superseded_there(
    docket: Docket, totals: MetricTotals, stops: bool
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(perpetual: Perpetual = Perpetual()) -> None:
        begun.set()
        await go_on.wait()
        if stops:
            perpetual.cancel()

    await _replace_while_it_runs(docket, work, begun, go_on)

    assert totals.superseded == {"on_complete": 1}


async def test_metrics_do_not_grow_with_the_names_of_tasks(docket: Docket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fallback runs tasks of any name, and whoever writes to the server invents names."""
    labels: set[str] = set()

    def note(amount: float, attributes: Mapping[str, Any]) -> None:
        if attributes.get("docket.name") == docket.name and "docket.task" in attributes:
            labels.add(attributes["docket.task"])

    async def fallback(*args: object, **kwargs: object) -> None: ...

    async def work() -> None: ...

    async with Docket(name=docket.name, url=docket.url) as producer:
        for number in range(20):
            producer.register(work, names=[f"invented {number}"])
            await producer.add(f"invented {number}")()
    monkeypatch.setattr(reporter, "MOST_FUNCTIONS", 5)
    for instrument in instruments.instruments():
        monkeypatch.setattr(instrument, "mirror", note)
    async with asyncio.timeout(SECONDS), Worker(docket, fallback_task=fallback) as worker:
        await worker.run_until_finished()

    assert len(labels) == 6
    assert "(others)" in labels
