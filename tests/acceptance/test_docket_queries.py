"""Looking at what is on a docket: executions, the snapshot and the workers."""

import asyncio
from datetime import timedelta

import pytest

from docket import Docket, ExecutionState, Worker
from docket.docket import DocketSnapshot, RunningExecution, WorkerInfo
from docket.errors import TaskNotRegistered
from tests.running import run_everything, running
from tests.times import later, now
from tests.waiting import eventually, within


async def noop(*args: object, **kwargs: object) -> None: ...


async def test_an_execution_is_found_by_its_key(docket: Docket) -> None:
    when = later()
    await docket.add(noop, when=when, key="k")(1, b=2)

    execution = await docket.get_execution("k")

    assert execution is not None
    assert (execution.key, execution.function, execution.args, execution.kwargs) == (
        "k",
        noop,
        (1,),
        {"b": 2},
    )
    assert abs(execution.when - when) < timedelta(milliseconds=2)
    assert execution.state == ExecutionState.SCHEDULED


async def test_an_unknown_key_has_no_execution(docket: Docket) -> None:
    assert await docket.get_execution("nobody") is None


async def test_an_execution_is_found_where_its_function_is_not_registered(docket: Docket) -> None:
    await docket.add(noop, key="k")("here")

    async with Docket(name=docket.name, url=docket.url) as elsewhere:
        execution = await elsewhere.get_execution("k")

    assert execution is not None
    assert execution.function_name == "noop"
    assert execution.args == ("here",)


async def test_a_function_that_is_not_known_here_has_a_stand_in_of_its_name(docket: Docket) -> None:
    await docket.add(noop, when=later(), key="k")("here")

    async with Docket(name=docket.name, url=docket.url) as elsewhere:
        execution = await elsewhere.get_execution("k")
        (waiting,) = (await elsewhere.snapshot()).future

        assert execution is not None
        assert execution.function.__name__ == waiting.function.__name__ == "noop"
        with pytest.raises(TaskNotRegistered, match="'noop'"):
            await execution.function()


async def test_a_finished_execution_is_found_with_its_ending(docket: Docket) -> None:
    await docket.add(noop, key="k")()
    await run_everything(docket)

    execution = await docket.get_execution("k")

    assert execution is not None
    assert execution.state == ExecutionState.COMPLETED
    assert execution.started_at is not None
    assert execution.completed_at is not None
    assert execution.started_at <= execution.completed_at


async def test_the_snapshot_of_an_empty_docket_is_empty(docket: Docket) -> None:
    before = now()

    snapshot = await docket.snapshot()

    assert isinstance(snapshot, DocketSnapshot)
    assert before - timedelta(seconds=1) <= snapshot.taken <= now() + timedelta(seconds=1)
    assert snapshot.total_tasks == 0
    assert list(snapshot.future) == []
    assert list(snapshot.running) == []
    assert list(snapshot.workers) == []


async def test_the_snapshot_shows_queued_and_scheduled_work(docket: Docket) -> None:
    await docket.add(noop, key="now")(1)
    await docket.add(noop, when=later(), key="later")(2)

    snapshot = await docket.snapshot()

    assert snapshot.total_tasks == 2
    assert {execution.key: execution.args for execution in snapshot.future} == {"now": (1,), "later": (2,)}
    assert {execution.function_name for execution in snapshot.future} == {"noop"}


async def test_the_snapshot_shows_what_runs_where_and_since_when(docket: Docket, worker: Worker) -> None:
    started, finish = asyncio.Event(), asyncio.Event()
    before = now()

    async def hold() -> None:
        started.set()
        await finish.wait()

    await docket.add(hold, key="k")()
    async with running(worker):
        await within(started.wait())
        snapshot = await docket.snapshot()
        finish.set()

    (entry,) = snapshot.running
    assert isinstance(entry, RunningExecution)
    assert entry.key == "k"
    assert entry.function_name == "hold"
    assert entry.worker == worker.name
    assert before - timedelta(seconds=1) <= entry.started <= now()
    assert list(snapshot.future) == []
    assert snapshot.total_tasks == 1


async def test_the_snapshot_shows_the_workers(docket: Docket, worker: Worker) -> None:
    async def is_listed() -> bool:
        return [info.name for info in (await docket.snapshot()).workers] == [worker.name]

    async with running(worker):
        await eventually(is_listed, "the snapshot lists the worker")


async def test_running_workers_are_listed_with_the_tasks_they_know(docket: Docket, worker: Worker) -> None:
    docket.register(noop, names=["nothing"])
    before = now() - timedelta(seconds=1)

    async def is_listed() -> bool:
        return len(list(await docket.workers())) == 1

    async with running(worker):
        await eventually(is_listed, "the worker is listed")
        (info,) = await docket.workers()

    assert isinstance(info, WorkerInfo)
    assert info.name == worker.name
    assert info.last_seen >= before
    assert {"nothing", "trace"} <= info.tasks


async def test_the_workers_for_a_task_are_those_that_know_it(docket: Docket, worker: Worker) -> None:
    docket.register(noop)

    async def is_listed() -> bool:
        return [info.name for info in await docket.task_workers("noop")] == [worker.name]

    async with running(worker):
        await eventually(is_listed, "the worker is listed for the task")

        assert list(await docket.task_workers("unheard_of")) == []
