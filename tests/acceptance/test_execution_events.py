"""Following a task: its events and its progress."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from docket import Docket, ExecutionState, NotOpen, Progress, Worker
from docket.execution import Execution, ExecutionProgress, ProgressEvent, StateEvent
from docket.execution.waiting import listening
from docket.ledger import TaskStatus
from docket.storage.client.urls import ServerKind
from tests.running import run_everything, running
from tests.times import later, soon
from tests.waiting import eventually, within

ENDINGS = {ExecutionState.COMPLETED, ExecutionState.FAILED, ExecutionState.CANCELLED}


async def noop() -> None: ...


async def count_to_three(progress: ExecutionProgress = Progress()) -> None:
    await progress.set_total(3)
    await progress.set_message("counting")
    for _ in range(3):
        await progress.increment()


async def events_until_the_end(
    execution: Execution, ready: asyncio.Event | None = None
) -> list[StateEvent | ProgressEvent]:
    seen: list[StateEvent | ProgressEvent] = []
    async for event in execution.subscribe(ready=ready):
        seen.append(event)
        if event["type"] == "state" and ExecutionState(event["state"]) in ENDINGS:
            break
    return seen


async def first_of(events: AsyncGenerator[StateEvent | ProgressEvent]) -> StateEvent | ProgressEvent:
    async for event in events:
        return event
    raise AssertionError("no event")


async def test_the_first_event_is_the_current_state(docket: Docket) -> None:
    execution = await docket.add(noop, when=later(), key="k")()

    event = await within(first_of(execution.subscribe()))

    assert event["type"] == "state"
    assert event["key"] == "k"
    assert event["state"] == ExecutionState.SCHEDULED
    assert event["worker"] is None
    assert event["started_at"] is None
    assert event["completed_at"] is None
    assert event["error"] is None


async def test_the_state_in_an_event_may_be_compared_as_text_too(docket: Docket) -> None:
    execution = await docket.add(noop, when=later())()

    event = await within(first_of(execution.subscribe()))

    assert event["type"] == "state"
    assert event["state"] == "scheduled"


async def test_a_finished_task_tells_its_ending_at_once(docket: Docket) -> None:
    execution = await docket.add(noop)()
    await run_everything(docket)

    event = await within(first_of(execution.subscribe()))

    assert event["type"] == "state"
    assert event["state"] == ExecutionState.COMPLETED


async def test_a_finished_task_tells_its_progress_at_once(docket: Docket) -> None:
    execution = await docket.add(count_to_three)()
    await run_everything(docket)

    seen: list[StateEvent | ProgressEvent] = []
    async for event in execution.subscribe():
        seen.append(event)
        if event["type"] == "progress":
            break

    assert [event["type"] for event in seen] == ["state", "progress"]


async def test_the_states_of_a_task_arrive_in_order(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(noop, when=soon(200))()
    ready = asyncio.Event()
    follower = asyncio.create_task(events_until_the_end(execution, ready))
    await within(ready.wait())
    async with running(worker):
        events = await within(follower)

    states = [ExecutionState(event["state"]) for event in events if event["type"] == "state"]
    distinct = [state for n, state in enumerate(states) if n == 0 or states[n - 1] != state]
    assert distinct == [
        ExecutionState.SCHEDULED,
        ExecutionState.QUEUED,
        ExecutionState.RUNNING,
        ExecutionState.COMPLETED,
    ]


async def test_the_failure_is_in_the_last_event(docket: Docket, worker: Worker) -> None:
    async def burn() -> None:
        raise ValueError("smoke")

    execution = await docket.add(burn, when=soon())()
    follower = asyncio.create_task(events_until_the_end(execution))
    async with running(worker):
        last = (await within(follower))[-1]

    assert last["type"] == "state"
    assert last["state"] == ExecutionState.FAILED
    assert last["worker"] == worker.name
    assert last["error"] is not None
    assert "smoke" in last["error"]


async def test_a_cancellation_is_an_event(docket: Docket) -> None:
    execution = await docket.add(noop, when=later())()
    ready = asyncio.Event()
    follower = asyncio.create_task(events_until_the_end(execution, ready))
    await within(ready.wait())

    await docket.cancel(execution.key)
    last = (await within(follower))[-1]

    assert last["type"] == "state"
    assert last["state"] == ExecutionState.CANCELLED


async def test_progress_arrives_while_the_task_runs(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(count_to_three, when=soon())()
    ready = asyncio.Event()
    follower = asyncio.create_task(events_until_the_end(execution, ready))
    await within(ready.wait())
    async with running(worker):
        events = await within(follower)

    steps = [event for event in events if event["type"] == "progress"]
    counts = [step["current"] for step in steps if step["current"]]
    assert counts == [1, 2, 3]
    assert steps[-1]["total"] == 3
    assert steps[-1]["message"] == "counting"
    assert steps[-1]["updated_at"] is not None


async def test_progress_can_be_followed_alone(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(count_to_three, when=soon())()
    ready = asyncio.Event()

    async def follow() -> ProgressEvent:
        async for event in execution.progress.subscribe(ready=ready):
            if event["current"] == 3:
                return event
        raise AssertionError("the progress ended early")

    follower = asyncio.create_task(follow())
    await within(ready.wait())
    async with running(worker):
        event = await within(follower)

    assert event["type"] == "progress"
    assert (event["current"], event["total"], event["message"]) == (3, 3, "counting")


async def test_progress_can_be_looked_up_from_outside(docket: Docket, worker: Worker) -> None:
    reported, finish = asyncio.Event(), asyncio.Event()

    async def work(progress: ExecutionProgress = Progress()) -> None:
        await progress.set_total(10)
        await progress.increment()
        await progress.increment(3)
        await progress.set_message("almost")
        reported.set()
        await finish.wait()

    execution = await docket.add(work)()
    async with running(worker):
        await within(reported.wait())
        await execution.progress.sync()
        finish.set()

    progress = execution.progress
    assert (progress.current, progress.total, progress.message) == (4, 10, "almost")
    assert progress.updated_at is not None


async def test_the_task_itself_sees_its_progress_without_asking(docket: Docket) -> None:
    seen: list[tuple[int | None, int, str | None]] = []

    async def work(progress: ExecutionProgress = Progress()) -> None:
        await progress.set_total(10)
        await progress.increment(4)
        await progress.set_message("nearly")
        seen.append((progress.current, progress.total, progress.message))

    await docket.add(work)()
    await run_everything(docket)

    assert seen == [(4, 10, "nearly")]


async def test_the_progress_of_a_finished_task_can_still_be_read(docket: Docket) -> None:
    execution = await docket.add(count_to_three, key="k")()
    await run_everything(docket)

    async def is_complete() -> bool:
        await execution.progress.sync()
        return execution.progress.current == 3

    await eventually(is_complete, "the progress is complete")


async def test_leaving_a_subscription_early_leaves_no_task_behind(docket: Docket) -> None:
    execution = await docket.add(noop, when=later())()
    before = {task for task in asyncio.all_tasks() if not task.done()}

    events = execution.subscribe()
    await within(anext(events))
    await within(events.aclose())

    async def is_clean() -> bool:
        left = {task for task in asyncio.all_tasks() if not task.done()} - before
        return all("subscriptions" in task.get_name() for task in left)

    await eventually(is_clean, "only the docket's own subscriptions are left")


async def test_a_follower_that_outlives_the_docket_is_cancelled_quietly(name: str, url: str) -> None:
    async with Docket(name=name, url=url) as docket:
        execution = await docket.add(noop, when=later())()
        ready = asyncio.Event()
        follower = asyncio.create_task(events_until_the_end(execution, ready))
        await within(ready.wait())

    follower.cancel()
    (ending,) = await within(asyncio.gather(follower, return_exceptions=True))

    # A docket on a cluster or behind sentinels takes longer to close, so that the follower may hear
    # of that first.
    is_on_group = docket.server.address.kind in (ServerKind.CLUSTER, ServerKind.SENTINEL)
    assert isinstance(ending, (asyncio.CancelledError, NotOpen) if is_on_group else asyncio.CancelledError)


async def test_the_current_state_is_not_told_twice(docket: Docket, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that arrives between the subscription and the lookup tells what the lookup shows."""
    execution = await docket.add(noop, when=later(), key="k")()
    look, has_changed = docket.ledger.tasks.get, asyncio.Event()

    async def late(key: str, *, to_wait: bool = False) -> TaskStatus:
        if not has_changed.is_set():
            has_changed.set()
            async with listening(docket, key) as inbox:
                await docket.replace(noop, later(), key)()
                await inbox.get()
        return await look(key, to_wait=to_wait)

    monkeypatch.setattr(docket.ledger.tasks, "get", late)
    states: list[str] = []
    async for event in execution.subscribe():
        if event["type"] == "state":
            states.append(event["state"])
        else:
            await docket.cancel("k")

    assert states == ["scheduled", "cancelled"]
