"""What an execution says about its task."""

import asyncio
from datetime import timedelta
from typing import Annotated, Any

import pytest

from docket import (
    CurrentExecution,
    Disposition,
    Docket,
    Execution,
    ExecutionState,
    Logged,
    Perpetual,
    Progress,
    Retry,
    Worker,
)
from docket.errors import LeaseLost, TaskFailed
from docket.execution import ExecutionProgress
from tests.running import run_everything, running, worker_for
from tests.times import later, now
from tests.waiting import eventually, reaches, within


async def noop(*args: object, **kwargs: object) -> None: ...


async def test_a_task_goes_from_queued_through_running_to_completed(docket: Docket, worker: Worker) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        started.set()
        await finish.wait()

    execution = await docket.add(hold)()
    seen = [execution.state]
    async with running(worker):
        await within(started.wait())
        await execution.sync()
        seen.append(execution.state)
        assert execution.worker == worker.name
        assert execution.started_at is not None
        assert execution.completed_at is None
        finish.set()
        await reaches(execution, ExecutionState.COMPLETED)

    assert seen == [ExecutionState.QUEUED, ExecutionState.RUNNING]
    assert execution.completed_at is not None
    assert execution.completed_at >= execution.started_at
    assert execution.error is None


async def test_a_task_that_raises_ends_failed_and_says_why(docket: Docket) -> None:
    async def burn() -> None:
        raise ValueError("smoke in the kitchen")

    execution = await docket.add(burn)()
    await run_everything(docket)
    await execution.sync()

    assert execution.state == ExecutionState.FAILED
    assert execution.error is not None
    assert "smoke in the kitchen" in execution.error


async def test_states_are_their_names_in_lower_case() -> None:
    assert [state.value for state in ExecutionState] == [
        "scheduled",
        "queued",
        "running",
        "completed",
        "failed",
        "cancelled",
    ]


async def test_the_running_task_sees_its_own_execution(docket: Docket) -> None:
    seen: list[object] = []

    async def look(value: int, execution: Execution = CurrentExecution()) -> None:
        seen.extend([execution.key, execution.args, execution.attempt, execution.redelivered, execution.state])

    await docket.add(look, key="k")(7)
    await run_everything(docket)

    assert seen == ["k", (7,), 1, False, ExecutionState.RUNNING]


async def test_a_task_is_not_superseded_while_nobody_replaces_it(docket: Docket) -> None:
    seen: list[bool] = []

    async def look(execution: Execution = CurrentExecution()) -> None:
        seen.append(await execution.is_superseded())

    await docket.add(look)()
    await run_everything(docket)

    assert seen == [False]


async def test_a_running_task_is_superseded_once_it_is_replaced(docket: Docket) -> None:
    seen: list[bool] = []

    async def look(execution: Execution = CurrentExecution()) -> None:
        await execution.docket.replace(noop, when=now(), key=execution.key)()
        seen.append(await execution.is_superseded())

    await docket.add(look, key="k")()
    await run_everything(docket)

    assert seen == [True]


async def test_a_replacement_has_a_higher_generation_than_what_it_replaces(docket: Docket) -> None:
    generations: list[int] = []

    async def look(again: bool, execution: Execution = CurrentExecution()) -> None:
        generations.append(execution.generation)
        if again:
            await docket.replace(look, when=now(), key=execution.key)(False)

    await docket.add(look, key="k")(True)
    await run_everything(docket)

    assert generations[0] < generations[1]


async def test_a_later_life_of_a_key_has_a_higher_generation(docket: Docket) -> None:
    generations: list[int] = []

    async def look(execution: Execution = CurrentExecution()) -> None:
        generations.append(execution.generation)

    for _ in range(2):
        await docket.add(look, key="k")()
        await run_everything(docket)

    assert generations[0] < generations[1]


async def test_an_argument_is_found_by_its_name_however_it_was_passed(docket: Docket) -> None:
    async def send(to: str, subject: str = "hello", *, urgent: bool = False) -> None: ...

    execution = await docket.add(send, when=later())("me", urgent=True)

    assert execution.get_argument("to") == "me"
    assert execution.get_argument("urgent") is True


async def test_the_call_shows_only_logged_arguments_and_the_key(docket: Docket) -> None:
    async def pay(account: Annotated[str, Logged()], password: str, *, amount: Annotated[int, Logged()]) -> None: ...

    execution = await docket.add(pay, when=later(), key="k")("acme", "hunter2", amount=5)
    call = execution.call_repr()

    assert call.startswith("pay(")
    assert call.endswith("){k}")
    assert "'acme'" in call
    assert "amount=5" in call
    assert "hunter2" not in call


async def test_the_labels_tell_the_task_in_general_and_the_run_in_particular(docket: Docket) -> None:
    when = later()
    execution = await docket.add(noop, when=when, key="k")()

    assert dict(execution.general_labels()) == {"docket.task": "noop"}
    assert dict(execution.specific_labels()) == {
        "docket.task": "noop",
        "docket.key": "k",
        "docket.when": when.isoformat(),
        "docket.attempt": 1,
    }


async def test_an_execution_made_by_hand_can_be_scheduled(docket: Docket) -> None:
    ran: list[int] = []

    async def note(n: int) -> None:
        ran.append(n)

    docket.register(note)
    execution = Execution(docket, note, (7,), {}, key="k", when=now(), attempt=1)
    await execution.schedule()
    await run_everything(docket)

    assert ran == [7]


async def test_scheduling_an_execution_again_with_replace_overwrites_the_first(docket: Docket) -> None:
    ran: list[int] = []

    async def note(n: int) -> None:
        ran.append(n)

    await docket.add(note, when=later(), key="k")(1)
    execution = Execution(docket, note, (2,), {}, key="k", when=now(), attempt=1)
    await execution.schedule(replace=True)
    await run_everything(docket)

    assert ran == [2]


async def test_a_client_may_claim_an_execution_and_complete_it(docket: Docket) -> None:
    execution = await docket.add(noop, key="k")()

    assert await execution.claim("by hand")
    await execution.sync()
    assert (execution.state, execution.worker) == (ExecutionState.RUNNING, "by hand")

    await execution.mark_as_completed()
    await execution.sync()
    assert execution.state == ExecutionState.COMPLETED
    assert execution.completed_at is not None


async def test_a_manual_run_keeps_its_task_while_the_docket_is_open(name: str, url: str) -> None:
    lease = {"heartbeat_interval": timedelta(milliseconds=100), "missed_heartbeats": 3}
    async with Docket(name=name, url=url, **lease) as docket, worker_for(docket) as worker:
        execution = await docket.add(noop, key="k")()
        assert await execution.claim("by hand")
        async with running(worker):
            await asyncio.sleep(1.0)
            assert {info.name for info in await docket.workers()} == {worker.name}
        await docket.ledger.run_script("sweep", (500, 0, 0, b"", ""))

        await execution.mark_as_completed()
        await execution.sync()
        assert execution.state == ExecutionState.COMPLETED


async def test_a_manual_run_whose_docket_was_closed_is_run_by_a_worker(docket: Docket) -> None:
    ran: list[int] = []

    async def work() -> None:
        ran.append(1)

    docket.register(work)
    lease = {"heartbeat_interval": timedelta(milliseconds=50), "missed_heartbeats": 2}
    await docket.add(work, key="k")()
    async with Docket(name=docket.name, url=docket.url, **lease) as elsewhere:
        claimed = await elsewhere.get_execution("k")
        assert claimed is not None
        assert await claimed.claim("by hand")

    async def is_put_back() -> bool:
        await docket.ledger.run_script("sweep", (500, 0, 0, b"", ""))
        return (await docket.ledger.tasks.get("k")).run is None

    await eventually(is_put_back, "the task is put back")
    await run_everything(docket)
    assert ran == [1]


async def test_a_manual_run_that_no_longer_counts_is_told_so(docket: Docket) -> None:
    execution = await docket.add(noop, key="k")()
    await execution.claim("by hand")
    await docket.replace(noop, later(), "k")()

    with pytest.raises(LeaseLost, match="'k' no longer counts"):
        await execution.mark_as_completed()

    await execution.sync()
    assert execution.state == ExecutionState.SCHEDULED


async def test_ending_a_manual_run_again_after_a_lost_answer_is_no_error(docket: Docket) -> None:
    execution = await docket.add(noop, key="k")()
    await execution.claim("by hand")
    epoch = execution.epoch
    await execution.mark_as_completed()
    # As if the answer had not come: the run is still this execution's.
    execution.epoch = epoch

    await execution.mark_as_completed()
    assert execution.state == ExecutionState.COMPLETED


async def test_what_is_scheduled_in_a_manual_run_follows_it(docket: Docket) -> None:
    execution = await docket.add(noop, key="k")()
    await execution.claim("by hand")
    execution.when = later()
    assert await execution.schedule() is Disposition.SCHEDULED

    await execution.mark_as_completed()

    assert execution.state == ExecutionState.SCHEDULED
    assert execution.when > now()


async def test_a_client_may_mark_an_execution_as_failed(docket: Docket) -> None:
    execution = await docket.add(noop, key="k")()
    await execution.claim("by hand")

    await execution.mark_as_failed("no luck")
    await execution.sync()

    assert (execution.state, execution.error) == (ExecutionState.FAILED, "no luck")


async def test_an_execution_that_is_marked_as_failed_without_an_error_has_none(docket: Docket) -> None:
    execution = await docket.add(noop, key="k")()
    await execution.claim("by hand")

    await execution.mark_as_failed()
    told = execution.error
    await execution.sync()

    assert (execution.state, told, execution.error) == (ExecutionState.FAILED, None, None)
    with pytest.raises(TaskFailed, match="the task failed"):
        await execution.get_result()


async def test_a_client_may_mark_an_execution_as_cancelled(docket: Docket) -> None:
    execution = await docket.add(noop, key="k")()
    await execution.claim("by hand")

    await execution.mark_as_cancelled()
    await execution.sync()

    assert execution.state == ExecutionState.CANCELLED


async def test_a_fresh_execution_has_no_progress_yet(docket: Docket) -> None:
    execution = await docket.add(noop, when=later())()

    await execution.progress.sync()
    assert isinstance(execution.progress, ExecutionProgress)
    assert execution.progress.current is None
    assert execution.progress.total == 100
    assert execution.progress.message is None
    assert execution.progress.updated_at is None


async def test_the_progress_of_a_task_starts_at_zero_when_it_runs(docket: Docket) -> None:
    seen: list[object] = []

    async def look(progress: ExecutionProgress = Progress()) -> None:
        seen.extend([progress.current, progress.total])

    await docket.add(look)()
    await run_everything(docket)

    assert seen == [0, 100]


async def test_two_executions_of_other_tasks_are_not_equal(docket: Docket) -> None:
    first = await docket.add(noop, when=later())()
    second = await docket.add(noop, when=later())()

    assert first != second


@pytest.mark.parametrize("delay", [timedelta(hours=1), timedelta(days=3650)])
async def test_a_far_time_is_kept_to_the_millisecond(docket: Docket, delay: timedelta) -> None:
    when = now() + delay
    await docket.add(noop, when=when, key="k")()

    execution = await docket.get_execution("k")

    assert execution is not None
    assert abs(execution.when - when) < timedelta(milliseconds=1)


@pytest.mark.parametrize("name", ["docket", "function", "function_name", "args", "kwargs", "key"])
async def test_what_was_scheduled_cannot_be_set(docket: Docket, name: str) -> None:
    execution = await docket.add(noop, key="k")(1)
    before = getattr(execution, name)

    with pytest.raises(AttributeError):
        setattr(execution, name, "another")

    assert getattr(execution, name) == before


async def test_a_client_may_set_attributes_of_its_own(docket: Docket) -> None:
    execution: Any = await docket.add(noop)()

    execution.mcp_task_id = "t1"

    assert execution.mcp_task_id == "t1"


async def test_what_a_body_schedules_of_itself_follows_the_run(docket: Docket) -> None:
    seen: list[tuple[int, ...]] = []

    async def count_down(n: int, execution: Execution = CurrentExecution()) -> int:
        seen.append((n,))
        if n:
            execution.kwargs["n"] = n - 1
            assert await execution.schedule() is Disposition.SCHEDULED
        return n

    execution = await docket.add(count_down, key="k")(n=2)
    await run_everything(docket)

    assert seen == [(2,), (1,), (0,)]
    assert await within(execution.get_result()) == 0


async def test_what_a_body_schedules_of_itself_follows_also_a_failure(docket: Docket) -> None:
    seen: list[int] = []

    async def fail_first(n: int, execution: Execution = CurrentExecution()) -> str:
        seen.append(n)
        if n == 0:
            execution.kwargs["n"] = 1
            await execution.schedule()
            raise RuntimeError("smoke")
        return "well"

    execution = await docket.add(fail_first, key="k")(n=0)
    await run_everything(docket)

    assert seen == [0, 1]
    assert await within(execution.get_result()) == "well"


async def test_a_retry_goes_before_what_the_body_scheduled(docket: Docket) -> None:
    seen: list[tuple[str, int]] = []

    async def work(name: str, retry: Retry = Retry(attempts=2), execution: Execution = CurrentExecution()) -> None:
        seen.append((name, retry.attempt))
        if name == "first":
            execution.kwargs["name"] = "second"
            await execution.schedule()
        if retry.attempt == 1:
            raise RuntimeError("smoke")

    await docket.add(work, key="k")(name="first")
    await run_everything(docket)

    assert seen[:2] == [("first", 1), ("first", 2)]
    assert ("second", 2) in seen


async def test_a_perpetual_tasks_next_run_goes_before_what_the_body_scheduled(docket: Docket) -> None:
    seen: list[str] = []

    async def work(name: str, perpetual: Perpetual = Perpetual(), execution: Execution = CurrentExecution()) -> None:
        seen.append(name)
        if len(seen) == 1:
            execution.kwargs["name"] = "scheduled"
            await execution.schedule()
            perpetual.perpetuate("perpetuated")
        else:
            perpetual.cancel()

    await docket.add(work, key="k")(name="first")
    await run_everything(docket)

    assert seen == ["first", "perpetuated"]


async def test_an_execution_that_outlives_its_run_schedules_like_any_other(docket: Docket) -> None:
    held: list[Execution] = []

    async def work(execution: Execution = CurrentExecution()) -> None:
        held.append(execution)

    await docket.add(work, key="k")()
    await run_everything(docket)

    assert await held[0].schedule() is Disposition.SCHEDULED
    await run_everything(docket)
    assert len(held) == 2
