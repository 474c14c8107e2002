"""Plain functions run in threads of the worker."""

from __future__ import annotations

import asyncio
import functools
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from docket import (
    ConcurrencyLimit,
    CurrentDocket,
    CurrentExecution,
    CurrentWorker,
    Depends,
    Docket,
    Execution,
    ExecutionCancelled,
    ExecutionState,
    Perpetual,
    Progress,
    Retry,
    Shared,
    TaskFailed,
    TaskKey,
    TaskLogger,
    Timeout,
    Worker,
    check_cancelled,
    run_async,
)
from docket.instrumentation import THREADS_ABANDONED
from tests.running import run_with_defaults, worker_at_work
from tests.waiting import WAIT_LIMIT, eventually, reaches

MINUTE = timedelta(minutes=1)


def is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def where(number: int = 0) -> tuple[int, bool]:
    return number, is_main()


async def result_of(docket: Docket, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    execution = await docket.add(function)(*args)
    await run_with_defaults(docket, **options)
    return await execution.get_result(timeout=WAIT_LIMIT)


class Service:
    def send(self, number: int) -> tuple[int, bool]:
        return where(number)

    def __call__(self, number: int) -> tuple[int, bool]:
        return where(number)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@pytest.mark.parametrize(
    "function",
    [where, Service().send, Service(), functools.partial(where), decorated(where), lambda number: where(number)],
    ids=["function", "method", "callable object", "partial", "decorated", "lambda"],
)
async def test_a_plain_function_runs_in_a_thread(docket: Docket, function: Callable[..., Any]) -> None:
    docket.register(function, names=["plain"])
    execution = await docket.add("plain")(7)
    await run_with_defaults(docket)
    assert await execution.get_result(timeout=WAIT_LIMIT) == (7, False)


async def awaited(number: int) -> tuple[int, bool]:
    return where(number)


def returns_awaitable(number: int) -> Awaitable[tuple[int, bool]]:
    return asyncio.ensure_future(awaited(number))


def says_nothing(number: int) -> Any:
    return awaited(number)


class AsyncService:
    async def __call__(self, number: int) -> tuple[int, bool]:
        return where(number)


@pytest.mark.parametrize(
    "function",
    [
        awaited,
        functools.partial(awaited),
        decorated(awaited),
        AsyncService(),
        returns_awaitable,
        says_nothing,
        lambda number: awaited(number),
    ],
    ids=["function", "partial", "decorated", "callable object", "annotated", "not annotated", "lambda"],
)
async def test_whatever_returns_an_awaitable_runs_in_the_event_loop(
    docket: Docket, function: Callable[..., Any]
) -> None:
    docket.register(function, names=["async"])
    execution = await docket.add("async")(7)
    await run_with_defaults(docket)
    assert await execution.get_result(timeout=WAIT_LIMIT) == (7, True)


@pytest.mark.parametrize("mock", [AsyncMock(return_value=7), Mock(return_value=7)], ids=["AsyncMock", "Mock"])
async def test_a_mock_can_be_a_task(docket: Docket, mock: Any) -> None:
    docket.register(mock, names=["mock"])
    execution = await docket.add("mock")(1, two=2)
    await run_with_defaults(docket)
    assert await execution.get_result(timeout=WAIT_LIMIT) == 7
    mock.assert_called_once_with(1, two=2)


# Dependencies and context

tenant: ContextVar[str] = ContextVar("tenant", default="none")


@contextmanager
def connect() -> Iterator[str]:
    yield "connection"


async def pool() -> str:
    return "pool"


async def test_dependencies_are_resolved_as_ever(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    def task(
        number: int,
        key: str = TaskKey(),
        connection: str = Depends(connect),
        shared: str = Shared(pool),
        docket: Docket = CurrentDocket(),
        execution: Execution = CurrentExecution(),
        worker: Worker = CurrentWorker(),
        log: logging.LoggerAdapter[logging.Logger] = TaskLogger(),
        retry: Retry = Retry(attempts=3),
    ) -> list[Any]:
        log.warning("number %d", number)
        return [
            is_main(),
            number,
            key == execution.key,
            connection,
            shared,
            docket.name == worker.docket.name,
            retry.attempt,
        ]

    assert await result_of(docket, task, 7) == [False, 7, True, "connection", "pool", True, 1]
    assert "number 7" in caplog.messages


async def test_context_variables_are_copied_into_the_thread(docket: Docket) -> None:
    async def set_tenant() -> str:
        tenant.set("acme")
        return "acme"

    def task(given: str = Depends(set_tenant)) -> str:
        found = tenant.get()
        tenant.set("another")
        return found

    assert await result_of(docket, task) == "acme"
    assert tenant.get() == "none"


async def test_a_plain_function_fails_and_is_retried_like_any_other(docket: Docket) -> None:
    attempts: list[int] = []

    def task(retry: Retry = Retry(attempts=3)) -> int:
        attempts.append(retry.attempt)
        if retry.attempt < 3:
            raise ValueError("not yet")
        return retry.attempt

    assert await result_of(docket, task) == 3
    assert attempts == [1, 2, 3]


async def test_a_plain_function_may_perpetuate_itself(docket: Docket) -> None:
    numbers: list[int] = []

    def task(number: int, perpetual: Perpetual = Perpetual()) -> None:
        numbers.append(number)
        if number == 3:
            perpetual.cancel()
        perpetual.perpetuate(number + 1)

    await docket.add(task)(1)
    await run_with_defaults(docket)
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize("error", [StopIteration("no more"), SystemExit(3), KeyboardInterrupt()])
async def test_whatever_a_plain_function_raises_fails_only_its_task(docket: Docket, error: BaseException) -> None:
    def task() -> None:
        raise error

    execution = await docket.add(task)()
    other = await docket.add(where)(2)
    await run_with_defaults(docket)
    with pytest.raises((RuntimeError, TaskFailed)):
        await execution.get_result(timeout=WAIT_LIMIT)
    assert await other.get_result(timeout=WAIT_LIMIT) == (2, False)


# What a plain function can use


async def test_progress_is_written_by_the_call_itself(docket: Docket) -> None:
    def task(progress: Progress = Progress()) -> int | None:
        progress.set_total(10)
        progress.increment(3)
        progress.set_message("on it")
        progress.update(current=5)
        return progress.current

    execution = await docket.add(task)()
    await run_with_defaults(docket)
    assert await execution.get_result(timeout=WAIT_LIMIT) == 5
    await execution.sync()
    progress = execution.progress
    assert (progress.current, progress.total, progress.message) == (5, 10, "on it")


async def test_progress_is_written_by_calls_in_threads_of_the_function(docket: Docket) -> None:
    def task(progress: Progress = Progress()) -> None:
        with ThreadPoolExecutor(4) as pool:
            for written in [pool.submit(progress.increment) for _ in range(20)]:
                written.result()

    docket.register(task)
    execution = await docket.add(task)()
    await run_with_defaults(docket)
    await execution.progress.sync()
    assert execution.progress.current == 20


async def test_a_bad_progress_raises_in_the_function(docket: Docket) -> None:
    def task(progress: Progress = Progress()) -> None:
        progress.increment(-1)

    execution = await docket.add(task)()
    await run_with_defaults(docket)
    with pytest.raises(ValueError, match="an increment of -1"):
        await execution.get_result(timeout=WAIT_LIMIT)


async def test_a_plain_function_runs_coroutines_in_the_event_loop(docket: Docket) -> None:
    async def main_thread() -> bool:
        return is_main()

    def task(docket: Docket = CurrentDocket()) -> tuple[bool, Any]:
        execution = run_async(docket.add(where)(5))
        return run_async(main_thread()), run_async(execution.get_result(timeout=WAIT_LIMIT))

    assert await result_of(docket, task) == (True, (5, False))


async def test_run_async_is_not_for_async_functions(docket: Docket) -> None:
    async def task() -> None:
        run_async(asyncio.sleep(0))

    execution = await docket.add(task)()
    await run_with_defaults(docket)
    with pytest.raises(RuntimeError, match="is for tasks that are plain functions"):
        await execution.get_result(timeout=WAIT_LIMIT)


def test_outside_a_worker_nothing_is_cancelled_and_nothing_runs() -> None:
    check_cancelled()
    with pytest.raises(RuntimeError, match="is for tasks that are plain functions"):
        run_async(asyncio.sleep(0))


async def test_a_timeout_can_be_extended_from_the_thread(docket: Docket) -> None:
    def task(timeout: Timeout = Timeout(timedelta(milliseconds=500))) -> tuple[bool, bool]:
        before = timeout.remaining()
        timeout.extend(MINUTE)
        # Longer than the first limit, which no longer counts.
        time.sleep(0.7)
        return before <= timedelta(milliseconds=500), timedelta(0) < timeout.remaining() <= MINUTE

    async def result() -> tuple[bool, bool] | None:
        # On a busy machine a thread may begin too late. It does not do so again and again.
        try:
            return await result_of(docket, task)
        except TimeoutError:
            return None

    assert await eventually(result, "the function has extended its time") == (True, True)


# Runs that are given up


class Gate:
    """A plain function that blocks until the test opens it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()
        self.over = threading.Event()
        self.error: BaseException | None = None

    def block(self) -> None:
        self.begun.set()
        self.opened.wait(WAIT_LIMIT.total_seconds())

    def note(self, check: Callable[[], object]) -> None:
        """Calls `check` after the block, and notes what it raises."""
        self.block()
        try:
            check()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.over.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


async def times_out_in_its_thread(worker: Worker, task: Callable[[], None], gate: Gate) -> None:
    """Runs the task until its Timeout ends a function that has begun. On a busy machine the time
    may be over before the thread begins; then the function is not called."""
    threads = worker.staff.threads
    while not gate.begun.is_set():
        with pytest.raises(TimeoutError):
            await (await worker.docket.add(task)()).get_result(timeout=WAIT_LIMIT)
        await eventually(lambda: gate.begun.is_set() or threads.abandoned == 0, "the function is called, or is not")


async def test_a_timed_out_run_is_given_up_at_once_and_keeps_its_slot(docket: Docket, gate: Gate) -> None:
    def task(timeout: Timeout = Timeout(timedelta(milliseconds=50))) -> None:
        gate.block()

    async with worker_at_work(docket, concurrency=2) as worker:
        await times_out_in_its_thread(worker, task, gate)
        assert worker.staff.threads.abandoned == 1
        assert worker.staff.slots.count == 1

        # The other slot works on.
        assert await (await docket.add(where)(1)).get_result(timeout=WAIT_LIMIT) == (1, False)

        gate.opened.set()
        await eventually(lambda: worker.staff.threads.abandoned == 0, "the thread has returned")
        assert (worker.staff.slots.count, worker.staff.slots.free) == (2, 2)


async def test_a_cancelled_run_is_given_up_at_once(docket: Docket, gate: Gate) -> None:
    def task() -> None:
        gate.block()

    async with worker_at_work(docket):
        execution = await docket.add(task)()
        await eventually(gate.begun.is_set, "the function has begun")
        await docket.cancel(execution.key)
        with pytest.raises(ExecutionCancelled):
            await execution.get_result(timeout=WAIT_LIMIT)
        assert not gate.opened.is_set()


async def test_what_a_given_up_run_writes_changes_nothing(docket: Docket, gate: Gate) -> None:
    """The function goes on, but its result, its progress and its next run no longer count."""

    def task(execution: Execution = CurrentExecution(), progress: Progress = Progress()) -> str:
        gate.note(progress.increment)
        return "too late"

    async with worker_at_work(docket) as worker:
        execution = await docket.add(task)()
        await eventually(gate.begun.is_set, "the function has begun")
        await docket.cancel(execution.key)
        await reaches(execution, ExecutionState.CANCELLED)
        gate.opened.set()
        await eventually(lambda: worker.staff.threads.abandoned == 0, "the thread has returned")
        await execution.sync()
        assert (execution.state, execution.progress.current) == (ExecutionState.CANCELLED, None)


@pytest.mark.parametrize("what", ["check_cancelled", "progress", "run_async"])
async def test_a_given_up_function_is_told_at_its_next_check(docket: Docket, gate: Gate, what: str) -> None:
    def task(progress: Progress = Progress(), timeout: Timeout = Timeout(timedelta(milliseconds=50))) -> None:
        checks: dict[str, Callable[[], object]] = {
            "check_cancelled": check_cancelled,
            "progress": progress.increment,
            "run_async": lambda: run_async(asyncio.sleep(0)),
        }
        gate.note(checks[what])

    async with worker_at_work(docket) as worker:
        await times_out_in_its_thread(worker, task, gate)
        gate.opened.set()
        await eventually(gate.over.is_set, "the function has ended")
        assert isinstance(gate.error, asyncio.CancelledError)
        assert gate.error.args == ("docket: the Timeout expired",)


async def test_a_function_that_waits_for_a_coroutine_is_woken_when_its_run_is_given_up(
    docket: Docket, gate: Gate
) -> None:
    def task() -> None:
        gate.opened.set()
        gate.note(lambda: run_async(asyncio.Event().wait()))

    async with worker_at_work(docket) as worker:
        execution = await docket.add(task)()
        await eventually(gate.begun.is_set, "the function has begun")
        await docket.cancel(execution.key)
        await reaches(execution, ExecutionState.CANCELLED)
        await eventually(lambda: worker.staff.threads.abandoned == 0, "the thread has returned")
        assert isinstance(gate.error, asyncio.CancelledError)


async def test_an_abandoned_thread_does_not_hold_up_the_worker(docket: Docket, gate: Gate) -> None:
    def task() -> None:
        gate.block()

    async with Worker(docket, grace_period=timedelta(0)) as worker:
        run = asyncio.create_task(worker.run_forever())
        execution = await docket.add(task)()
        await eventually(gate.begun.is_set, "the function has begun")
        worker.stop()
        await run
        assert not gate.opened.is_set()
    # Another worker gets the task.
    await reaches(execution, ExecutionState.QUEUED)


async def test_a_limit_holds_while_the_run_does(docket: Docket, gate: Gate) -> None:
    begun: list[int] = []

    def task(number: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        begun.append(number)
        gate.block()

    async with worker_at_work(docket):
        first, second = await docket.add(task)(1), await docket.add(task)(2)
        await eventually(gate.begun.is_set, "the function has begun")
        assert len(begun) == 1
        gate.opened.set()
        await first.get_result(timeout=WAIT_LIMIT)
        await second.get_result(timeout=WAIT_LIMIT)


# The pool


async def test_at_most_so_many_functions_run_at_a_time(docket: Docket, gate: Gate) -> None:
    begun: list[int] = []

    def task(number: int) -> None:
        begun.append(number)
        gate.block()

    async with worker_at_work(docket, concurrency=5, threads=2) as worker:
        executions = [await docket.add(task)(number) for number in range(4)]
        await eventually(lambda: len(begun) == 2 and worker.staff.slots.free == 1, "two functions have begun")
        # An async function needs no thread.
        assert await (await docket.add(awaited)(1)).get_result(timeout=WAIT_LIMIT) == (1, True)
        assert len(begun) == 2
        # A run that still waits for a thread can be cancelled, and leaves no thread behind.
        waiting = next(execution for number, execution in enumerate(executions) if number not in begun)
        await docket.cancel(waiting.key)
        await reaches(waiting, ExecutionState.CANCELLED)
        assert worker.staff.threads.abandoned == 0
        gate.opened.set()
        for execution in executions:
            if execution is not waiting:
                await execution.get_result(timeout=WAIT_LIMIT)
        assert len(begun) == 3


async def test_past_half_of_the_pool_the_worker_is_unhealthy(docket: Docket, gate: Gate) -> None:
    counted: list[int] = []

    def task() -> None:
        gate.block()

    async with worker_at_work(docket, concurrency=4) as worker:
        add, THREADS_ABANDONED.add = THREADS_ABANDONED.add, lambda amount, attributes: counted.append(amount)
        try:
            for number in (1, 2, 3):
                assert worker.health_problem() is None
                gate.begun.clear()
                execution = await docket.add(task)()
                await eventually(gate.begun.is_set, "the function has begun")
                await docket.cancel(execution.key)
                with pytest.raises(ExecutionCancelled):
                    await execution.get_result(timeout=WAIT_LIMIT)
                assert worker.staff.threads.abandoned == number
            assert worker.health_problem() == "3 of 4 threads go on although their run was given up"
            gate.opened.set()
            await eventually(lambda: worker.health_problem() is None, "the worker is healthy")
            await eventually(lambda: sum(counted) == 0, "all threads have returned")
        finally:
            THREADS_ABANDONED.add = add
        assert counted == [1, 1, 1, -1, -1, -1]


async def test_the_threads_end_with_the_worker(docket: Docket) -> None:
    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith(f"{docket.name} - thread:")]

    async with worker_at_work(docket) as worker:
        assert ours() == []
        assert await (await docket.add(where)(1)).get_result(timeout=WAIT_LIMIT) == (1, False)
        assert len(ours()) == 1
        assert worker.threads == worker.concurrency
    await eventually(lambda: ours() == [], "the thread has ended")


@pytest.mark.parametrize("threads", [0, -1])
def test_a_worker_needs_a_thread(docket: Docket, threads: int) -> None:
    with pytest.raises(ValueError, match=f"threads={threads}: it must be at least 1"):
        Worker(docket, threads=threads)


STUCK = """
import asyncio, sys, threading
from datetime import timedelta
from docket import Docket, Worker

begun = threading.Event()

def stuck() -> None:
    begun.set()
    while True:
        pass

async def main() -> None:
    async with Docket("stuck", "memory://stuck") as docket:
        await docket.add(stuck)()
        async with Worker(docket, grace_period=timedelta(0)) as worker:
            running = asyncio.create_task(worker.run_forever())
            while not begun.is_set():
                await asyncio.sleep(0.01)
            worker.stop()
            await running
    print("over")

asyncio.run(main())
"""


def test_a_function_that_never_returns_does_not_hold_up_the_end_of_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=WAIT_LIMIT.total_seconds(), check=False
    )
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
