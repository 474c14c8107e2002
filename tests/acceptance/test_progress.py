"""Progress that several write, and that anybody may follow to the end."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from docket import (
    ConcurrencyLimit,
    Docket,
    ExecutionProgress,
    ExecutionState,
    Perpetual,
    Progress,
    Retry,
    ServerUnreachable,
    TaskNotFound,
    Worker,
)
from docket.execution import ProgressEvent, StateEvent
from tests.running import run_everything, running
from tests.times import later, soon
from tests.waiting import eventually, reaches, within

Event = StateEvent | ProgressEvent


async def noop() -> None: ...


class Held:
    """A task that runs until it is let go."""

    def __init__(self) -> None:
        self.running, self.released = asyncio.Event(), asyncio.Event()

    def task(self) -> Any:
        async def hold() -> None:
            self.running.set()
            await self.released.wait()

        return hold


@pytest.fixture
async def held(docket: Docket, worker: Worker) -> AsyncGenerator[Held]:
    """The task "k", which runs and writes no progress itself."""
    held = Held()
    await docket.add(held.task(), key="k")()
    async with running(worker):
        await within(held.running.wait())
        yield held
        held.released.set()


def fields(progress: ExecutionProgress) -> tuple[int | None, int, str | None]:
    return progress.current, progress.total, progress.message


async def collect(events: AsyncGenerator[Any]) -> list[Any]:
    async with aclosing(events):
        return [event async for event in events]


async def following(events: AsyncGenerator[Any], ready: asyncio.Event) -> asyncio.Task[list[Any]]:
    follower = asyncio.create_task(collect(events))
    await within(ready.wait())
    return follower


# Several handles


async def test_handles_on_one_task_add_to_each_other_and_touch_only_their_field(docket: Docket, held: Held) -> None:
    first, second = ExecutionProgress(docket, "k"), ExecutionProgress(docket, "k")
    third = await ExecutionProgress.create(docket, "k")

    await first.set_total(10)
    await first.increment(5)
    await second.set_message("half")
    assert fields(second) == (5, 10, "half")
    await asyncio.gather(*(handle.increment() for handle in (first, second, third)))
    await third.sync()

    assert fields(third) == (8, 10, "half")


async def test_a_task_and_an_observer_write_its_progress_together(docket: Docket, worker: Worker) -> None:
    reported, go_on = asyncio.Event(), asyncio.Event()

    async def work(progress: ExecutionProgress = Progress()) -> str:
        await progress.set_total(10)
        await progress.increment(5)
        reported.set()
        await go_on.wait()
        await progress.increment()
        return f"{progress.current}/{progress.total} {progress.message}"

    execution = await docket.add(work)()
    async with running(worker):
        await within(reported.wait())
        await execution.progress.set_message("seen")
        go_on.set()
        assert await within(execution.get_result()) == "6/10 seen"

    await execution.sync()
    assert fields(execution.progress) == (6, 10, "seen")


async def test_another_process_adds_to_the_progress(tmp_path: Path, name: str) -> None:
    url = f"embedded://{tmp_path}"
    program = f"""
import asyncio
from docket import Docket, ExecutionProgress

async def main():
    async with Docket(name={name!r}, url={url!r}) as docket:
        await ExecutionProgress(docket, "k").increment(2)

asyncio.run(main())
"""
    async with Docket(name=name, url=url) as docket:
        execution = await docket.add(noop, when=later(), key="k")()
        await execution.progress.update(current=5, total=10, message="here")
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", program], capture_output=True, timeout=120
        )
        assert done.returncode == 0, done.stderr

        assert fields(await ExecutionProgress.create(docket, "k")) == (7, 10, "here")


async def test_progress_that_others_wrote_stays_with_the_finished_task(docket: Docket, held: Held) -> None:
    progress = ExecutionProgress(docket, "k")
    await progress.update(current=3, total=4, message="nearly")
    held.released.set()
    found = await docket.get_execution("k")
    assert found is not None
    await within(found.get_result())

    assert fields(await ExecutionProgress.create(docket, "k")) == (3, 4, "nearly")
    async with docket.redis() as redis:
        assert [key async for key in redis.scan_iter(match=b"*progress*")] == []


async def test_progress_that_is_written_while_the_task_waits_is_kept_for_its_run(docket: Docket) -> None:
    async def work(progress: ExecutionProgress = Progress()) -> str:
        await progress.increment()
        return f"{progress.current}/{progress.total} {progress.message}"

    execution = await docket.add(work, when=later())()
    await execution.progress.set_total(500)
    await execution.progress.set_message("prepared")
    found = await docket.get_execution(execution.key)
    assert found is not None
    assert fields(found.progress) == (None, 500, "prepared")

    assert await execution.claim("me")
    assert fields(await ExecutionProgress.create(docket, execution.key)) == (None, 500, "prepared")
    await execution.progress.increment()
    assert fields(execution.progress) == (1, 500, "prepared")


async def test_a_run_that_has_to_wait_in_line_keeps_what_was_written_before(docket: Docket, worker: Worker) -> None:
    first, go_on = asyncio.Event(), asyncio.Event()

    async def work(
        name: str,
        progress: ExecutionProgress = Progress(),
        limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1),
    ) -> str:
        first.set()
        await go_on.wait()
        await progress.increment()
        return f"{progress.current}/{progress.total}"

    await docket.add(work, key="holder")("holder")
    async with running(worker):
        await within(first.wait())
        execution = await docket.add(work, when=soon(300), key="k")("waits")
        await execution.progress.set_total(500)
        ready = asyncio.Event()
        follower = await following(execution.subscribe(ready), ready)
        await eventually(lambda: is_parked(docket), "the task is parked")
        go_on.set()
        events = await within(follower)

    progress = [event for event in events if event["type"] == "progress"]
    assert (progress[-1]["current"], progress[-1]["total"]) == (1, 500)


async def test_a_retry_starts_again(docket: Docket) -> None:
    seen: list[tuple[int | None, int, str | None]] = []

    async def work(progress: ExecutionProgress = Progress(), retry: Retry = Retry(attempts=2)) -> None:
        await progress.sync()
        seen.append(fields(progress))
        await progress.increment(7)
        if retry.attempt == 1:
            raise ValueError("smoke")

    execution = await docket.add(work)()
    await execution.progress.set_total(500)
    await run_everything(docket)

    assert seen == [(None, 500, None), (None, 100, None)]


async def test_a_replacement_starts_again(docket: Docket) -> None:
    execution = await docket.add(noop, when=later(), key="k")()
    await execution.progress.set_total(500)
    await docket.replace(noop, later(), "k")()

    assert fields(await ExecutionProgress.create(docket, "k")) == (None, 100, None)


async def test_a_write_for_a_task_that_is_not_there_raises(docket: Docket) -> None:
    execution = await docket.add(noop, key="k")()
    await run_everything(docket)

    with pytest.raises(TaskNotFound, match="'k'"):
        await execution.progress.increment()
    with pytest.raises(LookupError, match="'unknown'"):
        await ExecutionProgress(docket, "unknown").set_message("hello?")
    assert fields(await ExecutionProgress.create(docket, "k")) == (None, 100, None)


async def test_a_run_that_was_replaced_changes_nothing_and_goes_on(docket: Docket, worker: Worker) -> None:
    started, go_on, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(progress: ExecutionProgress = Progress()) -> None:
        started.set()
        await go_on.wait()
        await progress.increment(5)
        over.set()

    await docket.add(work, key="k")()
    async with running(worker):
        await within(started.wait())
        await docket.replace(noop, later(), "k")()
        go_on.set()
        await within(over.wait())

    assert fields(await ExecutionProgress.create(docket, "k")) == (None, 100, None)


async def test_what_an_outage_kept_from_being_written_goes_along_with_the_next_write(
    docket: Docket, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = ExecutionProgress(docket, "k")
    await progress.increment()

    async def refuse(*arguments: Any) -> Any:
        raise ServerUnreachable("away")

    with monkeypatch.context() as outage:
        outage.setattr(docket, "write_progress", refuse)
        await progress.increment(2)
        await progress.set_message("meanwhile")
        await progress.increment(3)
        assert fields(progress) == (6, 100, "meanwhile")
    await progress.set_total(10)

    assert fields(await ExecutionProgress.create(docket, "k")) == (6, 10, "meanwhile")


# One call


async def test_one_call_is_one_event(docket: Docket, held: Held) -> None:
    execution = await docket.get_execution("k")
    assert execution is not None
    ready = asyncio.Event()
    follower = await following(execution.progress.subscribe(ready), ready)

    await execution.progress.update(current=3, total=7, message="three")
    await execution.progress.update(message="still three")
    await execution.progress.set(5)
    await execution.progress.set(2)
    await execution.progress.update(current=0)
    await execution.progress.set_message(None)
    held.released.set()
    events = await within(follower)

    assert [(e["current"], e["total"], e["message"]) for e in events] == [
        (None, 100, None),
        (3, 7, "three"),
        (3, 7, "still three"),
        (5, 7, "still three"),
        (2, 7, "still three"),
        (0, 7, "still three"),
        (0, 7, None),
    ]
    assert all(event["updated_at"] is not None for event in events[1:])


@pytest.mark.parametrize(
    "text", ["", 'a "quoted" one', "\u00e9\U0001f40c \ud83d\n\\", '","updated_at":1}', "%d %s", "x" * 5000]
)
async def test_any_text_may_be_a_message(docket: Docket, held: Held, text: str) -> None:
    progress = ExecutionProgress(docket, "k")
    await progress.update(message=text, current=2**53 - 2, total=2**53)
    await progress.increment()

    assert fields(progress) == (2**53 - 1, 2**53, text)
    assert fields(await ExecutionProgress.create(docket, "k")) == (2**53 - 1, 2**53, text)


async def test_wrong_numbers_raise_and_change_nothing(docket: Docket, held: Held) -> None:
    progress = ExecutionProgress(docket, "k")
    wrong: Any = "1"
    for call in (
        lambda: progress.set_total(0),
        lambda: progress.increment(0),
        lambda: progress.set(-1),
        lambda: progress.update(current=-1),
        lambda: progress.update(total=2**53 + 1),
        lambda: progress.set(float("nan")),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match="must be at least"):
            await call()
    with pytest.raises(TypeError, match="must be a number"):
        await progress.set(wrong)
    with pytest.raises(TypeError, match="a current, a total or a message"):
        await progress.update()

    assert fields(await ExecutionProgress.create(docket, "k")) == (None, 100, None)


# Following to the end


async def test_a_subscriber_ends_by_itself_when_the_task_has_ended(docket: Docket, held: Held) -> None:
    execution = await docket.get_execution("k")
    assert execution is not None
    ready = asyncio.Event()
    follower = await following(execution.subscribe(ready), ready)
    held.released.set()
    events = await within(follower)

    assert events[-1]["state"] is ExecutionState.COMPLETED
    again = await within(collect(execution.subscribe()))
    assert [event["type"] for event in again] == ["state", "progress"]
    assert again[0]["state"] is ExecutionState.COMPLETED


async def test_a_subscriber_ends_by_itself_without_a_record_too(name: str, url: str) -> None:
    async with Docket(name=name, url=url, execution_ttl=timedelta(0)) as docket:
        execution = await docket.add(noop)()
        ready = asyncio.Event()
        follower = await following(execution.subscribe(ready), ready)
        await run_everything(docket)
        events = await within(follower)

        assert events[-1]["state"] is ExecutionState.COMPLETED
        with pytest.raises(TaskNotFound):
            await within(collect(execution.subscribe()))


async def test_a_subscriber_of_a_task_that_repeats_goes_on_until_the_chain_ends(docket: Docket) -> None:
    async def tick(number: int, perpetual: Perpetual = Perpetual()) -> None:
        perpetual.perpetuate(number + 1)
        if number == 3:
            perpetual.cancel()

    execution = await docket.add(tick)(1)
    ready = asyncio.Event()
    follower = await following(execution.subscribe(ready), ready)
    await run_everything(docket)
    events = await within(follower)

    states = [event["state"].value for event in events if event["type"] == "state"]
    assert states == ["queued", *["running", "completed", "queued"] * 2, "running", "completed"]


async def test_a_subscriber_follows_a_task_through_its_replacement(docket: Docket) -> None:
    execution = await docket.add(noop, when=later(), key="k")()
    ready = asyncio.Event()
    follower = await following(execution.subscribe(ready), ready)
    await docket.replace(noop, docket.now(), "k")()
    await run_everything(docket)
    events = await within(follower)

    states = [event["state"].value for event in events if event["type"] == "state"]
    assert states == ["scheduled", "queued", "running", "completed"]


async def test_a_subscriber_that_missed_the_end_finds_out(
    docket: Docket, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docket.execution.waiting.SAFETY_SECONDS", 0.2)
    execution = await docket.get_execution("k")
    assert execution is not None
    events = execution.subscribe()
    await within(anext(events))
    # Whatever is said from now on is not heard, and nobody says so.
    monkeypatch.setattr(docket.subscriptions, "_listeners", {})
    held.released.set()
    await reaches(execution, ExecutionState.COMPLETED)
    rest = await within(collect(events))

    assert rest[-1]["state"] is ExecutionState.COMPLETED


@pytest.mark.parametrize("followed", ["docket.watch", "progress.subscribe"])
async def test_following_an_unknown_key_raises(docket: Docket, followed: str) -> None:
    events: AsyncGenerator[Any] = (
        docket.watch("unknown") if followed == "docket.watch" else ExecutionProgress(docket, "unknown").subscribe()
    )

    with pytest.raises(TaskNotFound, match="'unknown'"):
        await within(anext(events))


async def is_parked(docket: Docket) -> bool:
    return (await docket.ledger.queries.census()).parked == 1
