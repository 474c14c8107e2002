"""Snapshots: what waits, what runs and who works, also when there is very much of it."""

import asyncio
import pickle
from datetime import timedelta
from typing import Any

import pytest

from docket import CurrentExecution, Docket, Execution, ExecutionState, Worker
from docket.errors import Undecodable
from docket.ledger.queries import Source, TaskQuery
from tests.running import at_work
from tests.waiting import WAIT_LIMIT

HOUR = timedelta(hours=1)


async def note(number: int, text: str = "") -> None: ...


async def other() -> None: ...


class Explosive:
    """Goes off when somebody reads it."""

    opened = 0

    def __reduce__(self) -> Any:
        return _explode, ()


def _explode() -> None:
    Explosive.opened += 1
    raise RuntimeError("opened")


async def test_an_empty_docket(docket: Docket) -> None:
    snapshot = await docket.snapshot()

    assert snapshot.total_tasks == 0
    assert snapshot.future == []
    assert snapshot.running == []
    assert snapshot.workers == []
    assert abs(docket.now() - snapshot.taken) < timedelta(seconds=10)


async def test_what_waits_is_shown_by_due_time_with_its_arguments(docket: Docket) -> None:
    now = docket.now()
    await docket.add(note, when=now + 2 * HOUR, key="late")(2, text="two")
    await docket.add(note, key="ready")(0)
    await docket.add(note, when=now + HOUR, key="soon")(1)

    snapshot = await docket.snapshot()

    assert snapshot.total_tasks == len(snapshot.future) == 3
    assert [e.key for e in snapshot.future] == ["ready", "soon", "late"]
    late = snapshot.future[-1]
    assert (late.function, late.args, late.kwargs, late.state) == (
        note,
        (2,),
        {"text": "two"},
        ExecutionState.SCHEDULED,
    )
    assert abs(late.when - (now + 2 * HOUR)) < timedelta(milliseconds=2)
    assert snapshot.future[0].state is ExecutionState.QUEUED


async def test_waiting_executions_behave_as_a_sequence(docket: Docket) -> None:
    now = docket.now()
    for i in range(5):
        await docket.add(note, when=now + HOUR * i, key=str(i))(i)

    future = (await docket.snapshot()).future

    assert [e.key for e in future[1:3]] == ["1", "2"]
    assert future[-1].key == "4"
    assert future[2] is future[2]
    assert [e.key for e in reversed(future)] == ["4", "3", "2", "1", "0"]
    assert list(future) == future
    with pytest.raises(IndexError):
        future[5]
    assert "note" in repr(future)


async def test_what_runs_shows_where_and_since_when(docket: Docket) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def long(execution: Execution = CurrentExecution()) -> None:
        begun.set()
        await go.wait()

    await docket.add(long, key="k")()
    async with Worker(docket, name="here") as worker, at_work(worker):
        await begun.wait()
        snapshot = await docket.snapshot()
        go.set()

    assert snapshot.total_tasks == 1
    assert len(snapshot.future) == 0
    [running] = snapshot.running
    assert (running.key, running.worker, running.state) == ("k", "here", ExecutionState.RUNNING)
    assert abs(running.started - snapshot.taken) < timedelta(seconds=20)
    [info] = snapshot.workers
    assert info.name == "here"
    assert {"long", "trace", "fail", "sleep"} <= info.tasks


async def test_functions_unknown_here_are_shown(docket: Docket) -> None:
    await docket.add(note, key="k")(1)

    async with Docket(docket.name, docket.url) as elsewhere:
        [execution] = (await elsewhere.snapshot()).future

    assert (execution.function_name, execution.args) == ("note", (1,))


async def test_arguments_are_read_only_where_somebody_looks(docket: Docket) -> None:
    """A task whose arguments cannot be read here is shown without them, and says why."""
    Explosive.opened = 0
    with pytest.raises(RuntimeError):
        pickle.loads(pickle.dumps(Explosive()))
    Explosive.opened = 0
    await docket.add(note, key="bad")(Explosive())  # pyright: ignore[reportArgumentType, reportCallIssue]
    await docket.add(note, when=docket.now() + HOUR, key="good")(1)

    snapshot = await docket.snapshot()
    assert snapshot.total_tasks == 2
    assert Explosive.opened == 0

    bad, good = snapshot.future
    assert (bad.key, bad.function_name, bad.args) == ("bad", "note", ())
    assert isinstance(bad.schedule_exception, Undecodable)
    assert good.args == (1,)


async def test_broken_records_and_those_of_a_newer_release_are_shown(docket: Docket) -> None:
    await docket.add(note, when=docket.now() + HOUR, key="newer")(1)
    async with docket.redis() as redis:
        record = await redis.hget(docket.keys.tasks, "newer")
        assert isinstance(record, bytes)
        await redis.hset(docket.keys.tasks, mapping={"newer": b"\x63" + record[1:], "broken": b"??", "empty": b""})

    snapshot = await docket.snapshot()
    counts = await docket.ledger.queries.count_by_function()
    pages = [row async for page in docket.ledger.queries.all(Source.EVERY, TaskQuery("note")) for row in page]

    assert snapshot.total_tasks == 3
    assert {e.key: e.function_name for e in snapshot.future}["newer"] == "note"
    assert all(isinstance(e.schedule_exception, Undecodable) for e in snapshot.future)
    assert counts["note"].scheduled == 1
    assert [row.key for row in pages] == ["newer"]


async def test_workers_are_found_and_those_who_know_a_task(docket: Docket) -> None:
    docket.register(note)
    async with Docket(docket.name, docket.url) as second:
        second.register(other)
        async with Worker(docket, name="one") as one, Worker(second, name="two") as two, at_work(one, two):
            assert {info.name for info in await docket.workers()} == {"one", "two"}
            assert {info.name for info in await docket.task_workers("note")} == {"one"}
            assert {info.name for info in await docket.task_workers("trace")} == {"one", "two"}
            assert await docket.task_workers("unheard of") == []
            for info in await docket.workers():
                assert abs(docket.now() - info.last_seen) < timedelta(seconds=20)
    assert await docket.workers() == []


async def test_clear_removes_what_waits_in_bounded_steps_and_frees_the_keys(docket: Docket) -> None:
    now = docket.now()
    calls = [docket.call(note, when=now + HOUR if i % 2 else None, key=f"k{i}")(i) for i in range(2_500)]
    await docket.add_many(calls)
    begun, go = asyncio.Event(), asyncio.Event()

    async def long() -> None:
        begun.set()
        await go.wait()

    async with Worker(docket, concurrency=1) as worker:
        removed = await docket.clear()
        assert removed == 2_500
        running = await docket.add(long, key="long")()
        async with at_work(worker):
            await begun.wait()
            assert await docket.clear() == 0
            go.set()
            await running.get_result(timeout=WAIT_LIMIT)

    cancelled = await docket.get_execution("k7")
    assert cancelled is not None
    assert cancelled.state is ExecutionState.CANCELLED
    again = await docket.add(note, when=now + HOUR, key="k7")(7)
    assert again.disposition.value == "scheduled"
    assert (await docket.snapshot()).total_tasks == 1
