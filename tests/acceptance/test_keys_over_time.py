"""What happens to a key that is added, replaced, cancelled and used again."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from docket import (
    CurrentExecution,
    Disposition,
    Docket,
    Execution,
    ExecutionCancelled,
    ExecutionState,
    Perpetual,
    Retry,
    Worker,
)
from tests.running import run_everything, running, worker_for
from tests.times import later, now, soon
from tests.waiting import ends, eventually, reaches, wait_until_scheduled, within


class Stage:
    """A task that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.finish = asyncio.Event()
        self.ran: list[str] = []

    async def hold(self, name: str) -> str:
        self.ran.append(name)
        self.started.set()
        await self.finish.wait()
        return name

    async def quick(self, name: str) -> str:
        self.ran.append(name)
        return name


@pytest.fixture
def stage(docket: Docket) -> Stage:
    stage = Stage()
    docket.register(stage.hold)
    docket.register(stage.quick)
    return stage


async def test_adding_a_key_whose_task_runs_changes_nothing(docket: Docket, worker: Worker, stage: Stage) -> None:
    first = await docket.add(stage.hold, key="k")("first")
    async with running(worker):
        await within(stage.started.wait())
        again = await docket.add(stage.quick, key="k")("second")
        stage.finish.set()
        assert await within(first.get_result()) == "first"
    await run_everything(docket)

    assert again.disposition == Disposition.ALREADY_SCHEDULED
    assert stage.ran == ["first"]


async def test_adding_a_key_that_waits_for_a_retry_changes_nothing(docket: Docket, worker: Worker) -> None:
    ran: list[tuple[str, int]] = []

    async def burn(name: str, retry: Retry = Retry(attempts=2, delay=timedelta(hours=1))) -> None:
        ran.append((name, retry.attempt))
        raise ValueError("smoke")

    await docket.add(burn, key="k")("first")
    async with running(worker):
        before = await wait_until_scheduled(docket, "k")
        again = await docket.add(burn, key="k")("second")
        after = await wait_until_scheduled(docket, "k")

    assert again.disposition == Disposition.ALREADY_SCHEDULED
    assert (after.when, after.args, after.attempt) == (before.when, ("first",), 2)
    assert ran == [("first", 1)]


async def test_of_a_queued_task_and_its_replacement_exactly_one_runs(docket: Docket, stage: Stage) -> None:
    original = await docket.add(stage.quick, key="k")("first")
    replacement = await docket.replace(stage.quick, when=soon(20), key="k")("second")
    await run_everything(docket)
    await original.sync()

    assert stage.ran == ["second"]
    assert original.state == ExecutionState.COMPLETED
    assert await replacement.get_result() == "second"


async def test_replacing_leaves_no_cancelled_state_behind(docket: Docket, stage: Stage) -> None:
    original = await docket.add(stage.quick, key="k")("first")
    seen: list[object] = []
    ready = asyncio.Event()

    async def follow() -> None:
        async for event in original.subscribe(ready):
            seen.append(event.get("state"))
            if event.get("state") == ExecutionState.COMPLETED:
                return

    follower = asyncio.create_task(follow())
    await within(ready.wait())
    await docket.replace(stage.quick, when=later(), key="k")("second")
    await original.sync()
    assert original.state == ExecutionState.SCHEDULED
    await docket.replace(stage.quick, when=now(), key="k")("third")
    await run_everything(docket)
    await within(follower)

    assert ExecutionState.CANCELLED not in seen
    assert stage.ran == ["third"]


@pytest.mark.parametrize("ending", ["success", "failure"])
async def test_whoever_waits_on_a_key_gets_the_replacements_result(
    docket: Docket, worker: Worker, stage: Stage, ending: str
) -> None:
    async def old() -> str:
        stage.started.set()
        await stage.finish.wait()
        if ending == "failure":
            raise ValueError("of the old one")
        return "old"

    execution = await docket.add(old, key="k")()
    waiting = asyncio.create_task(execution.get_result())
    async with running(worker):
        await within(stage.started.wait())
        replacement = await docket.replace(stage.quick, when=soon(300), key="k")("new")
        stage.finish.set()
        assert await within(waiting) == "new"
        assert await within(replacement.get_result()) == "new"


async def test_a_replaced_run_publishes_no_ending(docket: Docket, worker: Worker, stage: Stage) -> None:
    execution = await docket.add(stage.hold, key="k")("old")
    async with running(worker):
        await within(stage.started.wait())
        await docket.replace(stage.quick, when=later(), key="k")("new")
        stage.finish.set()

        async def is_idle() -> bool:
            return not (await docket.snapshot()).running

        await eventually(is_idle, "nothing runs")
        await execution.sync()
        assert execution.state == ExecutionState.SCHEDULED
    found = await docket.get_execution("k")
    assert found is not None
    assert found.args == ("new",)


async def test_a_key_that_is_used_again_shows_nothing_of_its_earlier_life(docket: Docket) -> None:
    async def work(fails: bool) -> str | None:
        if fails:
            raise ValueError("of the first life")
        return "result"

    first = await docket.add(work, key="k")(True)
    await run_everything(docket)
    await first.sync()
    assert first.state == ExecutionState.FAILED

    second = await docket.add(work, key="k", when=later())(False)
    await second.sync()
    assert second.state == ExecutionState.SCHEDULED
    assert (second.error, second.started_at, second.completed_at, second.result_key) == (None,) * 4
    with pytest.raises(TimeoutError):
        await second.get_result(timeout=timedelta(milliseconds=50))


async def test_the_expiry_of_an_old_record_does_not_take_the_new_one_along(name: str, url: str) -> None:
    async def work(number: int) -> int:
        return number

    async with Docket(name=name, url=url, execution_ttl=timedelta(milliseconds=300)) as docket:
        await docket.add(work, key="k")(1)
        await run_everything(docket)
        execution = await docket.add(work, key="k", when=later())(2)
        await asyncio.sleep(0.6)  # the time that the first record may live, and more
        await execution.sync()
        assert execution.state == ExecutionState.SCHEDULED
        found = await docket.get_execution("k")
        assert found is not None
        assert found.args == (2,)


@pytest.mark.parametrize("waiting", ["queued", "scheduled"])
async def test_a_cancelled_tasks_record_stays_and_its_key_can_be_added_again(
    docket: Docket, stage: Stage, waiting: str
) -> None:
    first = await docket.add(stage.quick, key="k", when=now() if waiting == "queued" else later())("first")
    await docket.cancel("k")
    found = await docket.get_execution("k")
    await first.sync()
    assert found is not None
    assert found.state == first.state == ExecutionState.CANCELLED

    second = await docket.add(stage.quick, key="k")("second")
    await run_everything(docket)

    assert second.disposition == Disposition.SCHEDULED
    assert await second.get_result() == "second"
    assert stage.ran == ["second"]


async def test_a_cancelled_task_does_not_retry(docket: Docket, worker: Worker, stage: Stage) -> None:
    async def work(retry: Retry = Retry(attempts=5)) -> None:
        stage.ran.append("attempt")
        stage.started.set()
        await asyncio.sleep(30)

    execution = await docket.add(work, key="k")()
    async with running(worker):
        await within(stage.started.wait())
        await docket.cancel("k")
        await reaches(execution, ExecutionState.CANCELLED)

    assert stage.ran == ["attempt"]
    assert (await docket.snapshot()).total_tasks == 0


async def test_a_task_that_waits_for_its_retry_can_be_cancelled(docket: Docket, worker: Worker) -> None:
    attempts: list[int] = []

    async def burn(retry: Retry = Retry(attempts=2, delay=timedelta(hours=1))) -> None:
        attempts.append(retry.attempt)
        raise ValueError("smoke")

    execution = await docket.add(burn, key="k")()
    async with running(worker):
        await wait_until_scheduled(docket, "k")
        await docket.cancel("k")
        await reaches(execution, ExecutionState.CANCELLED)

    assert attempts == [1]


async def test_a_body_that_swallows_the_cancel_completes(docket: Docket, worker: Worker, stage: Stage) -> None:
    async def stubborn() -> str:
        stage.started.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "anyway"
        return "never"

    execution = await docket.add(stubborn, key="k")()
    async with running(worker):
        await within(stage.started.wait())
        await docket.cancel("k")
        assert await within(execution.get_result()) == "anyway"

    assert execution.state == ExecutionState.COMPLETED


async def test_a_body_that_raises_cancelled_by_itself_ends_cancelled_and_its_chain_stops(
    docket: Docket, worker: Worker
) -> None:
    runs: list[int] = []

    async def quit_(perpetual: Perpetual = Perpetual(), retry: Retry = Retry(attempts=3)) -> None:
        runs.append(1)
        raise asyncio.CancelledError

    execution = await docket.add(quit_, key="k")()
    await ends(worker.run_until_finished())
    await execution.sync()

    assert runs == [1]
    assert execution.state == ExecutionState.CANCELLED
    with pytest.raises(ExecutionCancelled):
        await execution.get_result()


async def test_a_cancelled_perpetual_task_stops(docket: Docket, worker: Worker, stage: Stage) -> None:
    async def tick(perpetual: Perpetual = Perpetual()) -> None:
        stage.ran.append("tick")
        stage.started.set()
        await asyncio.sleep(30)

    execution = await docket.add(tick, key="k")()
    async with running(worker):
        await within(stage.started.wait())
        await docket.cancel("k")
        await reaches(execution, ExecutionState.CANCELLED)

    assert stage.ran == ["tick"]
    assert (await docket.snapshot()).total_tasks == 0


async def test_a_task_interrupted_by_the_workers_shutdown_is_left_for_another(docket: Docket, stage: Stage) -> None:
    seen: list[bool] = []

    async def work(execution: Execution = CurrentExecution()) -> str:
        seen.append(execution.redelivered)
        stage.started.set()
        if len(seen) == 1:
            await asyncio.sleep(30)
        return "done"

    execution = await docket.add(work, key="k")()
    async with worker_for(docket, grace_period=timedelta(milliseconds=50)) as worker, running(worker):
        await within(stage.started.wait())
    await execution.sync()
    assert execution.state not in (ExecutionState.CANCELLED, ExecutionState.FAILED, ExecutionState.COMPLETED)

    await run_everything(docket)

    assert await execution.get_result() == "done"
    assert len(seen) == 2


async def test_clearing_cancels_what_it_removes_and_leaves_what_runs(
    docket: Docket, worker: Worker, stage: Stage
) -> None:
    runs = await docket.add(stage.hold)("runs")
    async with running(worker):
        await within(stage.started.wait())
        removed = [await docket.add(stage.quick, when=later())("scheduled") for _ in range(3)]
        assert await docket.clear() == 3
        for execution in removed:
            await execution.sync()
            assert execution.state == ExecutionState.CANCELLED
        stage.finish.set()
        assert await within(runs.get_result()) == "runs"

    assert stage.ran == ["runs"]


async def test_a_batch_with_one_key_twice_adds_the_first(docket: Docket, stage: Stage) -> None:
    calls = [docket.call(stage.quick, key="k")(name) for name in ("first", "second")]

    executions = await docket.add_many(calls)
    await run_everything(docket)

    assert [execution.disposition for execution in executions] == [
        Disposition.SCHEDULED,
        Disposition.ALREADY_SCHEDULED,
    ]
    assert stage.ran == ["first"]


async def test_a_batch_with_one_key_twice_replaces_by_the_last(docket: Docket, stage: Stage) -> None:
    calls = [docket.call(stage.quick, key="k")(name) for name in ("first", "second")]

    await docket.replace_many(calls)
    await run_everything(docket)

    assert stage.ran == ["second"]


@pytest.mark.parametrize("verb", ["add_many", "replace_many"])
async def test_the_chunk_size_of_an_empty_batch_is_checked_too(docket: Docket, verb: str) -> None:
    assert await getattr(docket, verb)([]) == []
    with pytest.raises(ValueError, match="chunk_size"):
        await getattr(docket, verb)([], chunk_size=0)


async def test_nothing_is_stored_for_a_task_that_returns_nothing(docket: Docket) -> None:
    async def nothing() -> None: ...

    async def something() -> int:
        return 1

    empty, full = await docket.add(nothing)(), await docket.add(something)()
    await run_everything(docket)
    await empty.sync()
    await full.sync()

    assert empty.result_key is None
    assert full.result_key is not None


async def test_an_expired_limit_is_a_timeout_error_at_once(docket: Docket, stage: Stage) -> None:
    execution = await docket.add(stage.quick, when=later())("never")

    limits: list[dict[str, Any]] = [
        {"timeout": timedelta(0)},
        {"timeout": timedelta(seconds=-5)},
        {"deadline": now() - timedelta(seconds=5)},
    ]
    for limit in limits:
        with pytest.raises(TimeoutError):
            await within(execution.get_result(**limit), 1)


async def test_the_result_of_a_finished_task_comes_at_once_despite_an_expired_limit(
    docket: Docket, stage: Stage
) -> None:
    execution = await docket.add(stage.quick)("done")
    await run_everything(docket)

    assert await execution.get_result(timeout=timedelta(0)) == "done"
    assert await execution.get_result(deadline=now() - timedelta(seconds=5)) == "done"


async def test_following_misses_nothing_however_quick_the_task_is(docket: Docket, worker: Worker, stage: Stage) -> None:
    async def follow(execution: Execution) -> object:
        async for event in execution.subscribe():
            if event.get("state") in (ExecutionState.COMPLETED, ExecutionState.FAILED):
                return event.get("state")
        return None

    async with running(worker):
        executions = [await docket.add(stage.quick)("x") for _ in range(20)]
        states = await within(asyncio.gather(*(follow(execution) for execution in executions)))

    assert states == [ExecutionState.COMPLETED] * 20
