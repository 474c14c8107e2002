"""Running a worker, and stopping it."""

import asyncio
import os
import socket
from datetime import datetime, timedelta
from typing import Any

import pytest

from docket import Docket, ExecutionState, Perpetual, Retry, Timeout, Worker
from docket.execution import ExecutionCancelled
from tests.running import cancelled, run_everything, running, worker_for
from tests.times import later, now, soon
from tests.waiting import ends, reaches, within


async def noop() -> None: ...


async def test_a_worker_with_nothing_to_do_finishes(docket: Docket) -> None:
    await run_everything(docket)


async def test_running_until_finished_waits_for_future_work(docket: Docket) -> None:
    ran_at: list[datetime] = []
    when = soon(150)

    async def note() -> None:
        ran_at.append(now())

    await docket.add(note, when=when)()
    await run_everything(docket)

    assert len(ran_at) == 1
    assert ran_at[0] >= when


async def test_running_until_finished_includes_work_added_by_tasks(docket: Docket) -> None:
    seen: list[int] = []

    async def countdown(n: int) -> None:
        seen.append(n)
        if n:
            await docket.add(countdown, when=soon(10))(n - 1)

    await docket.add(countdown)(3)
    await run_everything(docket)

    assert seen == [3, 2, 1, 0]


async def test_a_worker_can_run_until_finished_again_and_again(docket: Docket, worker: Worker) -> None:
    ran: list[int] = []

    async def note(n: int) -> None:
        ran.append(n)

    for n in range(3):
        await docket.add(note)(n)
        await ends(worker.run_until_finished())

    assert ran == [0, 1, 2]


async def test_running_at_most_lets_a_perpetual_task_run_so_often(docket: Docket, worker: Worker) -> None:
    runs: list[str] = []

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=10))) -> None:
        runs.append("tick")

    await docket.add(tick, key="ticker")()
    await ends(worker.run_at_most({"ticker": 3}))

    assert runs == ["tick"] * 3


async def test_running_at_most_still_finishes_the_other_tasks(docket: Docket, worker: Worker) -> None:
    runs: list[str] = []

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=10))) -> None:
        runs.append("tick")

    async def once() -> None:
        runs.append("once")

    await docket.add(tick, key="ticker")()
    await docket.add(once, when=soon())()
    await ends(worker.run_at_most({"ticker": 1}))

    assert sorted(runs) == ["once", "tick"]


async def test_a_task_that_running_at_most_keeps_from_its_next_retry_is_cancelled(
    docket: Docket, worker: Worker
) -> None:
    attempts: list[int] = []

    async def burn(retry: Retry = Retry(attempts=5)) -> None:
        attempts.append(retry.attempt)
        raise ValueError("smoke")

    execution = await docket.add(burn, key="fire")()
    await ends(worker.run_at_most({"fire": 2}))
    await execution.sync()

    assert attempts == [1, 2]
    assert execution.state == ExecutionState.CANCELLED
    with pytest.raises(ExecutionCancelled, match="run_at_most"):
        await execution.get_result()


async def test_a_task_whose_last_attempt_fails_in_running_at_most_has_failed(docket: Docket, worker: Worker) -> None:
    async def burn(retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError("smoke")

    execution = await docket.add(burn, key="fire")()
    await ends(worker.run_at_most({"fire": 2}))
    await execution.sync()

    assert execution.state == ExecutionState.FAILED


async def test_a_perpetual_task_that_running_at_most_cuts_off_is_completed(docket: Docket, worker: Worker) -> None:
    async def tick(perpetual: Perpetual = Perpetual()) -> None: ...

    execution = await docket.add(tick, key="ticker")()
    await ends(worker.run_at_most({"ticker": 2}))
    await execution.sync()

    assert execution.state == ExecutionState.COMPLETED


async def test_running_for_ever_takes_work_as_it_comes(docket: Docket, worker: Worker) -> None:
    async def double(n: int) -> int:
        return 2 * n

    async with running(worker):
        for n in range(3):
            execution = await docket.add(double)(n)
            assert await within(execution.get_result()) == 2 * n


@pytest.mark.parametrize("way", ["run_forever", "run_until_finished", "run_at_most"])
async def test_a_cancelled_run_finishes_what_runs_and_returns(docket: Docket, worker: Worker, way: str) -> None:
    started, finished = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        await asyncio.sleep(0.1)
        finished.set()

    execution = await docket.add(work)()
    run = asyncio.create_task(
        worker.run_at_most({execution.key: 1}) if way == "run_at_most" else getattr(worker, way)()
    )
    await within(started.wait())
    await cancelled(run)
    await execution.sync()

    assert finished.is_set()
    assert not run.cancelled()
    assert execution.state == ExecutionState.COMPLETED


@pytest.mark.parametrize("way", ["run_forever", "run_until_finished", "run_at_most"])
async def test_a_cancelled_run_does_not_wait_for_future_work(docket: Docket, worker: Worker, way: str) -> None:
    execution = await docket.add(noop, when=later())()
    run = asyncio.create_task(
        worker.run_at_most({execution.key: 1}) if way == "run_at_most" else getattr(worker, way)()
    )
    first = await docket.add(noop)()
    await reaches(first, ExecutionState.COMPLETED)

    await cancelled(run, 3)
    await execution.sync()

    assert execution.state == ExecutionState.SCHEDULED


async def test_as_many_tasks_run_at_once_as_the_worker_may(docket: Docket) -> None:
    active, most = 0, 0

    async def work() -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.02)
        active -= 1

    await docket.add_many(docket.call(work)() for _ in range(12))
    await run_everything(docket, concurrency=3)

    assert most == 3


async def test_a_slow_task_does_not_hold_up_the_others(docket: Docket, worker: Worker) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        started.set()
        await finish.wait()

    async def quick() -> str:
        return "done"

    await docket.add(slow)()
    async with running(worker):
        await within(started.wait())
        execution = await docket.add(quick)()

        assert await within(execution.get_result()) == "done"
        finish.set()


async def test_two_workers_share_the_work_and_run_each_task_once(docket: Docket) -> None:
    ran: list[int] = []

    async def note(n: int) -> None:
        await asyncio.sleep(0.005)
        ran.append(n)

    await docket.add_many(docket.call(note)(n) for n in range(40))
    async with worker_for(docket, name="one") as one, worker_for(docket, name="two") as two:
        await asyncio.gather(ends(one.run_until_finished()), ends(two.run_until_finished()))

    assert sorted(ran) == list(range(40))


async def test_a_worker_is_named_after_its_host_and_process(docket: Docket) -> None:
    assert Worker(docket).name == f"{socket.gethostname()}#{os.getpid()}"


async def test_a_worker_keeps_the_settings_it_was_given(docket: Docket) -> None:
    worker = Worker(
        docket,
        name="mine",
        concurrency=3,
        redelivery_timeout=timedelta(seconds=7),
        reconnection_delay=timedelta(seconds=8),
        minimum_check_interval=timedelta(milliseconds=9),
        scheduling_resolution=timedelta(milliseconds=11),
        schedule_automatic_tasks=False,
        enable_internal_instrumentation=False,
        fallback_task=None,
        dependencies=None,
    )

    assert worker.docket is docket
    assert (worker.name, worker.concurrency) == ("mine", 3)
    assert worker.redelivery_timeout == timedelta(seconds=7)
    assert worker.reconnection_delay == timedelta(seconds=8)
    assert worker.minimum_check_interval == timedelta(milliseconds=9)
    assert worker.scheduling_resolution == timedelta(milliseconds=11)
    assert worker.schedule_automatic_tasks is False


async def test_a_worker_labels_its_measurements(docket: Docket) -> None:
    worker = Worker(docket, name="mine")

    assert dict(worker.labels()) == {"docket.name": docket.name, "docket.worker": "mine"}


async def test_a_running_task_with_a_time_limit_can_be_cancelled(docket: Docket, worker: Worker) -> None:
    started = asyncio.Event()

    async def work(timeout: Timeout = Timeout(timedelta(minutes=1))) -> None:
        started.set()
        await asyncio.Event().wait()

    execution = await docket.add(work)()
    async with running(worker):
        await within(started.wait())
        await docket.cancel(execution.key)
        await reaches(execution, ExecutionState.CANCELLED)


async def test_the_tasks_of_the_loop_are_named_after_the_docket(docket: Docket, worker: Worker) -> None:
    before = asyncio.all_tasks()
    names: set[str] = set()

    async def look() -> None:
        names.update(task.get_name() for task in asyncio.all_tasks() - before)

    execution = await docket.add(look)()
    async with running(worker) as run:
        await reaches(execution, ExecutionState.COMPLETED)
        names.discard(run.get_name())

    assert f"{docket.name} - scheduler" in names
    assert {name for name in names if not name.startswith(docket.name)} == set()


async def test_tasks_that_live_for_a_moment_are_named_after_the_docket_too(name: str, url: str) -> None:
    """Opening a connection, sending a batch."""
    tasks: list[asyncio.Task[Any]] = []

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        tasks.append(asyncio.Task(coro, loop=loop, **options))
        return tasks[-1]

    loop = asyncio.get_running_loop()
    loop.set_task_factory(make)
    try:
        async with Docket(name=name, url=url) as docket:
            await docket.add_many([docket.call(noop)()])
            await run_everything(docket)
    finally:
        loop.set_task_factory(None)

    # The others are tasks of asyncio and redis-py.
    names = [task.get_name() for task in tasks if not task.get_name().startswith("Task-")]
    assert f"{name} - connecting" in names
    assert f"{name} - sending a batch" in names
    assert [task for task in names if not task.startswith(name)] == []


async def test_the_loop_is_left_as_it_was_found(name: str, url: str) -> None:
    before = asyncio.all_tasks()

    async with Docket(name=name, url=url) as docket:
        await docket.add(noop)()
        await run_everything(docket)

    assert asyncio.all_tasks() - before == set()


async def test_a_worker_that_is_not_to_seed_automatic_tasks_does_not(docket: Docket) -> None:
    ran: list[str] = []

    async def tick(perpetual: Perpetual = Perpetual(automatic=True)) -> None:
        ran.append("tick")
        perpetual.cancel()

    docket.register(tick)
    await run_everything(docket, schedule_automatic_tasks=False)

    assert ran == []


async def test_a_worker_seeds_automatic_tasks_by_default(docket: Docket, worker: Worker) -> None:
    ran = asyncio.Event()

    async def tick(perpetual: Perpetual = Perpetual(automatic=True)) -> None:
        ran.set()
        perpetual.cancel()

    docket.register(tick)
    async with running(worker):
        await within(ran.wait())


async def test_a_failing_task_does_not_stop_the_worker(docket: Docket) -> None:
    ran: list[str] = []

    async def burn() -> None:
        raise ValueError("smoke")

    async def note() -> None:
        ran.append("after")

    await docket.add(burn)()
    await docket.add(note)()
    await run_everything(docket, concurrency=1)

    assert ran == ["after"]
