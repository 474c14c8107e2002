"""What a caller learns of a failure: the exception with the worker's traceback, and the attempts so
far while a retry is pending."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from docket import (
    Depends,
    Docket,
    Execution,
    ExecutionState,
    FailedAttempt,
    Keyring,
    Perpetual,
    Retry,
    TaskFailed,
    Timeout,
    Worker,
)
from docket.dependencies import FailureHandler, TaskOutcome
from tests.nodes import flattened, on_every_node
from tests.running import run_everything, running, worker_at_work
from tests.waiting import eventually, within

HOUR = timedelta(hours=1)
KEYS = Keyring({"a": b"k" * 32})


def inner(text: str) -> None:
    raise ValueError(text)


async def burn() -> None:
    inner("smoke")


def burn_in_a_thread() -> None:
    inner("smoke")


async def burn_with_dependencies(timeout: Timeout = Timeout(HOUR), number: int = Depends(lambda: 1)) -> None:
    inner("smoke")


async def failure_of(docket: Docket, function: Callable[..., Any], *args: Any) -> Exception:
    execution = await docket.add(function)(*args)
    await run_everything(docket)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the caller says which
        await within(execution.get_result())
    return raised.value


def note_of(error: BaseException) -> str:
    (note,) = error.__notes__
    return note


async def is_watched(docket: Docket, key: str) -> bool:
    replies = await on_every_node(docket, "PUBSUB", "NUMSUB", docket.keys.task_channel(key))
    return any(list(flattened(reply))[1] for reply in replies)


# The traceback


@pytest.mark.parametrize("function", [burn, burn_in_a_thread, burn_with_dependencies])
async def test_the_exception_has_the_traceback_of_the_worker(docket: Docket, function: Callable[..., Any]) -> None:
    error = await failure_of(docket, function)

    assert type(error) is ValueError
    frames = [line for line in note_of(error).splitlines() if line.startswith("  File ")]
    assert [frame.rpartition(" in ")[2] for frame in frames] == [function.__name__, "inner"]
    # Python shows the note below the exception.
    assert note_of(error) in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "options",
    [{"codec": "json"}, {"signing": KEYS}, {"signing": KEYS, "encrypt": True}, {"execution_ttl": timedelta(0)}],
)
async def test_every_kind_of_docket_has_it(name: str, url: str, options: dict[str, Any]) -> None:
    async with Docket(name, url, **options) as docket:
        execution = await docket.add(burn)()
        # Without records, only those who listen hear of the end.
        waiter = asyncio.create_task(execution.get_result())
        await eventually(lambda: is_watched(docket, execution.key), "the caller listens")
        async with worker_at_work(docket):
            with pytest.raises((ValueError, TaskFailed), match="smoke") as raised:
                await within(waiter)

    assert "in inner" in note_of(raised.value)


async def test_a_task_that_fails_with_the_exception_of_another_shows_both(docket: Docket) -> None:
    async def waits(key: str) -> None:
        execution = await docket.get_execution(key)
        assert execution is not None
        await execution.get_result()

    burnt = await docket.add(burn)()
    await run_everything(docket)
    error = await failure_of(docket, waits, burnt.key)

    assert "in waits" in note_of(error)
    assert "in inner" in note_of(error)


async def test_a_run_of_a_chain_that_fails_has_a_traceback(docket: Docket, worker: Worker) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> None:
        inner("smoke")

    execution = await docket.add(tick)()
    waiter = asyncio.create_task(execution.get_result())
    async with running(worker):
        with pytest.raises(ValueError, match="smoke") as raised:
            await within(waiter)

    assert "in tick" in note_of(raised.value)


async def test_a_failing_dependency_is_in_the_traceback(docket: Docket) -> None:
    @asynccontextmanager
    async def connection() -> AsyncGenerator[int]:
        inner("no route")
        yield 1

    async def work(number: int = Depends(connection)) -> None: ...

    error = await failure_of(docket, work)
    assert isinstance(error, ExceptionGroup)
    assert "in connection" in note_of(error)
    assert "ValueError: no route" in note_of(error)


async def test_an_error_of_a_manual_run_has_no_traceback(docket: Docket) -> None:
    execution = await docket.add(burn)()
    assert await execution.claim("me")
    await execution.mark_as_failed("by hand")

    with pytest.raises(TaskFailed, match="by hand") as raised:
        await execution.get_result()
    assert not hasattr(raised.value, "__notes__")


# While a retry is pending


async def flaky(retry: Retry = Retry(attempts=3, delay=HOUR)) -> None:
    inner(f"number {retry.attempt}")


async def pending(docket: Docket, execution: Execution[Any]) -> None:
    """Waits until the task waits for its retry."""

    async def is_pending() -> bool:
        await execution.sync()
        return execution.state is ExecutionState.SCHEDULED and execution.attempt == 2

    await eventually(is_pending, "the retry is pending")


async def test_the_error_of_the_last_attempt_can_be_read_while_the_retry_is_pending(
    docket: Docket, worker: Worker
) -> None:
    docket.register(flaky)
    execution = await docket.add(flaky, key="k")()
    async with running(worker):
        await pending(docket, execution)

    assert execution.error == "ValueError: number 1"
    found = await docket.get_execution("k")
    assert found is not None
    assert found.error == "ValueError: number 1"
    (attempt,) = found.failed_attempts
    assert isinstance(attempt, FailedAttempt)
    assert (attempt.attempt, attempt.worker, attempt.error) == (1, worker.name, "ValueError: number 1")
    assert attempt.started_at <= attempt.failed_at <= docket.now()


async def test_a_subscriber_sees_why_the_task_waits_again(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(flaky)()
    ready = asyncio.Event()

    async def first_error() -> tuple[ExecutionState, str]:
        async for event in execution.subscribe(ready):
            if event["type"] == "state" and event["error"]:
                return event["state"], event["error"]
        raise AssertionError("no event has an error")

    watching = asyncio.create_task(first_error())
    await within(ready.wait())
    async with running(worker):
        assert await within(watching) == (ExecutionState.SCHEDULED, "ValueError: number 1")
    # One that comes later sees it, too.
    assert await within(first_error()) == (ExecutionState.SCHEDULED, "ValueError: number 1")


async def test_a_running_attempt_has_no_error_yet_but_knows_the_attempts_before(docket: Docket) -> None:
    began, over = asyncio.Event(), asyncio.Event()

    async def twice(retry: Retry = Retry(attempts=2)) -> None:
        if retry.attempt == 1:
            inner("first")
        began.set()
        await over.wait()

    async with worker_at_work(docket):
        execution = await docket.add(twice)()
        await within(began.wait())
        await execution.sync()
        assert (execution.state, execution.error) == (ExecutionState.RUNNING, None)
        assert [attempt.error for attempt in execution.failed_attempts] == ["ValueError: first"]

        over.set()
        await within(execution.get_result())
        await execution.sync()
        assert (execution.state, execution.error) == (ExecutionState.COMPLETED, None)
        assert [attempt.attempt for attempt in execution.failed_attempts] == [1]


async def test_a_task_that_failed_for_good_has_its_attempts_and_its_last_error(docket: Docket) -> None:
    async def hopeless(retry: Retry = Retry(attempts=3)) -> None:
        inner(f"number {retry.attempt}")

    execution = await docket.add(hopeless)()
    await run_everything(docket)
    await execution.sync()

    assert execution.error == "ValueError: number 3"
    assert [attempt.error for attempt in execution.failed_attempts] == ["ValueError: number 1", "ValueError: number 2"]


async def test_a_task_that_succeeds_at_once_has_no_failed_attempts(docket: Docket) -> None:
    async def fine(retry: Retry = Retry(attempts=3)) -> None: ...

    execution = await docket.add(fine)()
    await run_everything(docket)
    await execution.sync()

    assert execution.failed_attempts == ()


async def test_nothing_of_the_attempts_outlives_a_task_without_a_record(name: str, url: str) -> None:
    async with Docket(name, url, execution_ttl=timedelta(0)) as docket:

        async def hopeless(retry: Retry = Retry(attempts=2)) -> None:
            inner("smoke")

        await docket.add(hopeless, key="k")()
        await run_everything(docket)
        async with docket.redis() as client:
            assert await client.exists(docket.keys.named("failed-attempts", "k")) == 0


async def test_an_encrypted_docket_shows_only_the_type_of_the_error(name: str, url: str) -> None:
    async with Docket(name, url, signing=KEYS, encrypt=True) as docket, Worker(docket) as worker:
        execution = await docket.add(flaky)()
        async with running(worker):
            await pending(docket, execution)
        async with docket.redis() as client:
            stored = await client.get(docket.keys.named("failed-attempts", execution.key))
        assert isinstance(stored, bytes)

    assert execution.error is not None
    assert execution.error.startswith("ValueError")
    assert "number 1" not in execution.error
    assert b"number 1" not in stored


async def test_a_failure_handler_of_the_users_own_keeps_the_attempts_too(docket: Docket, worker: Worker) -> None:
    class Again(FailureHandler[Any]):
        async def __aenter__(self) -> Again:
            return self

        async def handle_failure(self, execution: Execution[Any], outcome: TaskOutcome) -> bool:
            execution.run_again(attempt=execution.attempt + 1, delay=HOUR)
            return True

    async def work(again: Again = Again()) -> None:
        inner("number 1")

    execution = await docket.add(work)()
    async with running(worker):
        await pending(docket, execution)

    assert execution.error == "ValueError: number 1"


# The log


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Callable[[], list[logging.LogRecord]]:
    """The records about the ends of runs."""
    caplog.set_level(logging.INFO, logger="docket")
    return lambda: [record for record in caplog.records if record.getMessage()[0] in "↩↫"]


async def test_an_attempt_that_will_be_retried_is_one_warning_and_the_last_one_an_error(
    docket: Docket, records: Callable[[], list[logging.LogRecord]]
) -> None:
    async def hopeless(retry: Retry = Retry(attempts=3, delay=timedelta(milliseconds=20))) -> None:
        inner("smoke\nand fire")

    await docket.add(hopeless, key="k")()
    await run_everything(docket)

    first, second, last = records()
    message = first.getMessage()
    assert message.startswith("↫ [")
    assert message.endswith(r"hopeless(){k}: ValueError: smoke\nand fire; attempt 1 of 3, again in 20 ms")
    assert second.getMessage().endswith("attempt 2 of 3, again in 20 ms")
    assert {(record.levelname, record.exc_info) for record in (first, second)} == {("WARNING", None)}
    assert (last.levelname, last.getMessage()[0]) == ("ERROR", "↩")
    assert last.exc_info is not None


@pytest.mark.parametrize(
    ("retry", "shown"),
    [
        (Retry(attempts=2), "attempt 1 of 2, again at once"),
        (Retry(attempts=2, delay=timedelta(seconds=2)), "attempt 1 of 2, again in 2 s"),
        (Retry(attempts=2, delay=timedelta(seconds=1.5)), "attempt 1 of 2, again in 1.5 s"),
        (Retry(attempts=2, delay=HOUR), "attempt 1 of 2, again in 3,600 s"),
        (Retry.forever(delay=timedelta(seconds=2)), "attempt 1, again in 2 s"),
    ],
)
async def test_the_warning_says_when_the_task_runs_again(
    docket: Docket, worker: Worker, records: Callable[[], list[logging.LogRecord]], retry: Retry, shown: str
) -> None:
    async def once(retry: Retry = retry) -> None:
        if retry.attempt == 1:
            inner("smoke")

    await docket.add(once, key="k")()
    async with running(worker):
        await eventually(lambda: records() != [], "the first run has ended")

    assert records()[0].getMessage().endswith(f"ValueError: smoke; {shown}")


async def test_the_traceback_of_a_retried_attempt_is_there_for_those_who_debug(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="docket.dependencies")

    async def once(retry: Retry = Retry(attempts=2)) -> None:
        if retry.attempt == 1:
            inner("smoke")

    await docket.add(once)()
    await run_everything(docket)

    assert [record.levelname for record in caplog.records if record.exc_info] == ["DEBUG"]


async def test_records_have_the_attempt_of_their_run_its_times_and_its_error(
    docket: Docket, records: Callable[[], list[logging.LogRecord]]
) -> None:
    async def hopeless(retry: Retry = Retry(attempts=2, delay=timedelta(milliseconds=50))) -> None:
        inner("smoke")

    await docket.add(hopeless)()
    await run_everything(docket)

    for attempt, record in enumerate(records(), 1):
        fields = vars(record)
        assert fields["docket.attempt"] == attempt
        assert fields["error_type"] == "ValueError"
        assert fields["redelivered"] is False
        assert fields["duration"] >= 0
        # Early or late by the next delay, if the record had the due time of the next run.
        assert fields["punctuality"] >= 0


async def test_a_successful_run_has_no_error_type(
    docket: Docket, records: Callable[[], list[logging.LogRecord]]
) -> None:
    async def fine() -> None: ...

    await docket.add(fine)()
    await run_everything(docket)

    (record,) = records()
    assert "error_type" not in vars(record)


async def test_the_next_run_of_a_chain_does_not_change_the_record_of_this_one(
    docket: Docket, worker: Worker, records: Callable[[], list[logging.LogRecord]]
) -> None:
    async def tick(retry: Retry = Retry(attempts=2), perpetual: Perpetual = Perpetual(every=HOUR)) -> None:
        if retry.attempt == 1:
            inner("smoke")

    execution = await docket.add(tick)()
    waiter = asyncio.create_task(execution.get_result())
    async with running(worker):
        await within(waiter)
        await eventually(lambda: len(records()) == 2, "both runs are logged")

    assert [(r.getMessage()[0], r.levelname, vars(r)["docket.attempt"]) for r in records()] == [
        ("↫", "WARNING", 1),
        ("↫", "INFO", 2),
    ]
