"""A task goes to a worker that knows its function, and waits
for one while there is none. Nobody records it as done."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from docket import CurrentExecution, CurrentWorker, Docket, Execution, ExecutionState, Worker
from docket.errors import TaskNotRegistered
from docket.ledger import Settlement, unknown_function
from docket.ledger.deliveries import Deliveries
from docket.ledger.tasks import Tasks
from docket.storage.schema.settlements import UnknownItem
from docket.worker.claiming import fetcher
from docket.worker.lease import reclaimer
from tests.running import worker_at_work
from tests.waiting import WAIT_LIMIT, ends, eventually


@pytest.fixture
async def ignorant(docket: Docket) -> AsyncIterator[Docket]:
    """The same docket, in a process that does not know our functions."""
    async with Docket(docket.name, docket.url) as other:
        yield other


@pytest.fixture
def left_to_others(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each task was left to a worker that knows it."""
    counts, settle = Counter[str](), Tasks.settle

    async def counted(tasks: Tasks, settlements: Sequence[Settlement], *args: Any, **options: Any) -> Any:
        counts.update(s.key for s in settlements if isinstance(s.row, UnknownItem))
        return await settle(tasks, settlements, *args, **options)

    monkeypatch.setattr(Tasks, "settle", counted)
    return counts


async def test_a_task_waits_for_a_worker_that_knows_it_and_runs_when_there_is_one(
    docket: Docket, ignorant: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[int] = []

    async def note(n: int) -> int:
        ran.append(n)
        return n

    async with worker_at_work(ignorant):
        with caplog.at_level(logging.WARNING):
            executions = [await docket.add(note)(n) for n in range(3)]
            await eventually(lambda: has_waiting(docket, 3), "all wait")
        assert caplog.text.count("Unknown task 'note'") == 1
        await executions[0].sync()
        assert executions[0].state is ExecutionState.QUEUED
        snapshot = await docket.snapshot()
        assert [(f.name, f.tasks, f.is_known) for f in snapshot.unknown_functions] == [("note", 3, False)]
        async with worker_at_work(docket):
            assert [await execution.get_result(timeout=WAIT_LIMIT) for execution in executions] == [0, 1, 2]
        assert (await docket.snapshot()).unknown_functions == []
    assert ran == [0, 1, 2]


async def has_waiting(docket: Docket, count: int) -> bool:
    return (await docket.ledger.queries.census()).unknown == count


async def test_a_worker_whose_docket_gets_a_function_while_it_runs_brings_its_tasks_forward(docket: Docket) -> None:
    async def late(n: int) -> int:
        return n

    beat = timedelta(milliseconds=50)
    async with (
        Docket(docket.name, docket.url, heartbeat_interval=beat, missed_heartbeats=200) as other,
        worker_at_work(other),
    ):
        execution = await docket.add(late)(1)
        await eventually(lambda: has_waiting(docket, 1), "it waits")
        other.register(late)
        assert await execution.get_result(timeout=WAIT_LIMIT) == 1


async def test_among_ten_workers_a_task_reaches_the_one_that_knows_it_in_one_move(
    docket: Docket, left_to_others: Counter[str], record_property: Any
) -> None:
    ran: list[tuple[int, str]] = []

    async def note(n: int, worker: Worker = CurrentWorker()) -> None:
        ran.append((n, worker.name))

    async with AsyncExitStack() as stack:
        for _ in range(9):
            other = await stack.enter_async_context(Docket(docket.name, docket.url))
            await stack.enter_async_context(worker_at_work(other, concurrency=3))
        learned = await stack.enter_async_context(worker_at_work(docket, concurrency=3))
        delays: list[float] = []
        for n in range(100):
            execution = await docket.add(note)(n)
            await execution.get_result(timeout=WAIT_LIMIT)
            await execution.sync()
            assert execution.started_at is not None
            delays.append((execution.started_at - execution.when).total_seconds())
        record_property("longest_delay_ms", round(max(delays) * 1000))
        executions = await docket.add_many(docket.call(note)(n) for n in range(100, 600))
        for execution in executions:
            await execution.get_result(timeout=WAIT_LIMIT)
    assert Counter(n for n, _ in ran) == Counter(range(600))
    assert {name for _, name in ran} == {learned.name}
    assert left_to_others, "some came to workers that do not know them"
    # A second time only if the worker that knows it took it ahead and had no slot for it after all.
    assert max(left_to_others.values()) <= 2


async def test_while_workers_that_know_a_function_restart_its_tasks_wait_and_run_once(
    docket: Docket, ignorant: Docket
) -> None:
    ran: Counter[int] = Counter()

    async def note(n: int) -> int:
        ran[n] += 1
        return n

    docket.register(note)
    async with worker_at_work(ignorant):
        executions: list[Execution] = []
        for round in range(4):
            async with AsyncExitStack() as stack:
                if round % 2 == 0:
                    for _ in range(2):
                        await stack.enter_async_context(worker_at_work(docket))
                added = range(round * 30, round * 30 + 30)
                executions += [await docket.add(note)(n) for n in added]
                if round % 2 == 1:
                    await eventually(lambda: has_waiting_or_done(docket), "they have come to the worker that is left")
        async with worker_at_work(docket):
            assert [await execution.get_result(timeout=WAIT_LIMIT) for execution in executions] == list(range(120))
    assert ran == Counter(range(120))


async def has_waiting_or_done(docket: Docket) -> bool:
    census = await docket.ledger.queries.census()
    return census.unknown == census.unfinished


@pytest.mark.parametrize("how", ["run_until_finished", "run_at_most"])
async def test_a_worker_that_has_to_end_fails_what_no_live_worker_knows(
    docket: Docket, ignorant: Docket, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def note() -> None:
        raise AssertionError("it cannot run")

    async with worker_at_work(ignorant):
        waits = await docket.add(note)()
        await eventually(lambda: has_waiting(docket, 1), "it waits")
    meets = await docket.add(note)()
    async with Worker(ignorant) as worker:
        with caplog.at_level(logging.WARNING):
            run = worker.run_until_finished() if how == "run_until_finished" else worker.run_at_most({})
            await ends(run)
    for execution in (waits, meets):
        with pytest.raises(TaskNotRegistered, match="no live worker knows the task 'note'"):
            await execution.get_result(timeout=WAIT_LIMIT)
        await execution.sync()
        assert execution.state is ExecutionState.FAILED
    assert "Unknown task 'note'" in caplog.text


async def test_a_worker_that_has_to_end_leaves_to_others_what_they_know(docket: Docket, ignorant: Docket) -> None:
    async def note() -> str:
        return "done"

    docket.register(note)
    executions = [await docket.add(note)() for _ in range(20)]
    async with worker_at_work(docket, concurrency=1), Worker(ignorant) as worker:
        await ends(worker.run_until_finished())
        assert [await execution.get_result(timeout=WAIT_LIMIT) for execution in executions] == ["done"] * 20


async def test_a_fallback_gets_a_task_at_once_though_another_worker_knows_it(docket: Docket, ignorant: Docket) -> None:
    async def note() -> str:
        return "known"

    async def fallback(*args: Any, execution: Execution = CurrentExecution(), **kwargs: Any) -> str:
        return f"{execution.function_name} fell back"

    execution = await docket.add(note)()
    async with Worker(ignorant, fallback_task=fallback) as worker:
        await worker.run_until_finished()
    assert await execution.get_result(timeout=WAIT_LIMIT) == "note fell back"


async def test_a_worker_that_is_told_of_a_function_while_it_asks_for_work_asks_again(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "BLOCK_SECONDS", 600.0)
    # Nor does the sweep tell it again.
    monkeypatch.setattr(reclaimer, "SWEEP_SECONDS", 600.0)
    take, executions = Deliveries.take, list[Execution]()

    async def note() -> str:
        return "done"

    async def told_meanwhile(deliveries: Deliveries, *args: Any, **options: Any) -> Any:
        found = await take(deliveries, *args, **options)
        if not executions:
            # After the answer was made, and before the worker has it.
            await docket.ledger.fleet.register("ignorant~1", 60_000, [])
            executions.append(await docket.add(note)())
            [run] = await take(deliveries, "ignorant~1", '"ignorant"', 1) or []
            await docket.ledger.tasks.settle([unknown_function(run.key, run.epoch)])
            await eventually(lambda: worker.staff.fetcher._functions, "the worker was told")  # pyright: ignore[reportPrivateUsage]
        return found

    monkeypatch.setattr(Deliveries, "take", told_meanwhile)
    docket.register(note)
    async with Worker(docket, concurrency=1) as worker:
        working = asyncio.create_task(worker.run_forever())
        await eventually(lambda: executions, "it has asked for work")
        assert await executions[0].get_result(timeout=WAIT_LIMIT) == "done"
        worker.stop()
        await working
