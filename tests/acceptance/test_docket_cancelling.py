"""Taking work back: cancel and clear."""

import asyncio

import pytest

from docket import Docket, ExecutionCancelled, ExecutionState, Worker
from tests.running import run_everything, running
from tests.times import later
from tests.waiting import reaches, within


async def noop() -> None: ...


@pytest.mark.parametrize("waiting", ["queued", "scheduled"])
async def test_a_waiting_task_that_is_cancelled_never_runs(docket: Docket, waiting: str) -> None:
    ran: list[str] = []

    async def note() -> None:
        ran.append("yes")

    execution = await docket.add(note, when=later() if waiting == "scheduled" else None, key="k")()
    await docket.cancel("k")
    await run_everything(docket)
    await execution.sync()

    assert ran == []
    assert execution.state == ExecutionState.CANCELLED


async def test_a_running_task_is_cancelled_where_it_awaits(docket: Docket, worker: Worker) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def wait_long() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    execution = await docket.add(wait_long)()
    async with running(worker):
        await within(started.wait())
        await docket.cancel(execution.key)
        await within(cancelled.wait())
        await reaches(execution, ExecutionState.CANCELLED)


async def test_a_worker_goes_on_after_a_running_task_is_cancelled(docket: Docket, worker: Worker) -> None:
    started = asyncio.Event()

    async def wait_long() -> None:
        started.set()
        await asyncio.Event().wait()

    async def answer() -> int:
        return 42

    execution = await docket.add(wait_long)()
    async with running(worker):
        await within(started.wait())
        await docket.cancel(execution.key)
        other = await docket.add(answer)()

        assert await within(other.get_result()) == 42


async def test_whoever_waits_for_a_cancelled_task_is_told(docket: Docket) -> None:
    execution = await docket.add(noop, when=later())()
    waiter = asyncio.create_task(execution.get_result())
    await asyncio.sleep(0)

    await docket.cancel(execution.key)

    with pytest.raises(ExecutionCancelled):
        await within(waiter)


async def test_cancelling_an_unknown_key_does_nothing(docket: Docket) -> None:
    await docket.cancel("nobody")

    assert await docket.get_execution("nobody") is None


async def test_cancelling_a_finished_task_leaves_its_ending(docket: Docket) -> None:
    execution = await docket.add(noop)()
    await run_everything(docket)

    await docket.cancel(execution.key)
    await execution.sync()

    assert execution.state == ExecutionState.COMPLETED


async def test_clearing_removes_queued_and_scheduled_work_and_counts_it(docket: Docket) -> None:
    await docket.add(noop)()
    await docket.add(noop)()
    await docket.add(noop, when=later())()

    assert await docket.clear() == 3
    assert (await docket.snapshot()).total_tasks == 0


async def test_clearing_an_empty_docket_removes_nothing(docket: Docket) -> None:
    assert await docket.clear() == 0


async def test_clearing_frees_the_keys(docket: Docket) -> None:
    ran: list[str] = []

    async def note() -> None:
        ran.append("yes")

    await docket.add(note, key="k")()
    await docket.clear()
    await docket.add(note, key="k")()
    await run_everything(docket)

    assert ran == ["yes"]


async def test_clearing_copes_with_more_than_one_batch(docket: Docket) -> None:
    await docket.add_many(docket.call(noop, when=later())() for _ in range(1500))
    await docket.add_many(docket.call(noop)() for _ in range(1500))

    assert await docket.clear() == 3000
