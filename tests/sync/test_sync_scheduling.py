"""What code without an event loop gets from a docket."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from docket import (
    Disposition,
    ExecutionCancelled,
    ExecutionState,
    NotPaused,
    PayloadTooLarge,
    TaskCall,
    TaskNotFound,
    TaskNotRegistered,
    Unserializable,
)
from docket.sync import Docket, Execution
from tests.times import later
from tests.waiting import WAIT_LIMIT, eventually_blocking

from .tasks import climb, double, echo, refuse, refuse_for_now, stay


@pytest.mark.usefixtures("worker")
def test_a_task_runs_and_its_result_comes_back(docket: Docket) -> None:
    execution = docket.add(double)(21)

    assert execution.get_result(timeout=WAIT_LIMIT) == 42
    assert execution.state is ExecutionState.COMPLETED
    assert execution.worker is not None


@pytest.mark.usefixtures("worker")
def test_the_first_and_every_later_task_run(docket: Docket) -> None:
    assert [docket.add(double)(number).get_result(timeout=WAIT_LIMIT) for number in range(5)] == [0, 2, 4, 6, 8]


@pytest.mark.usefixtures("worker")
def test_the_exception_of_a_task_is_raised_where_its_result_is_read(docket: Docket) -> None:
    execution = docket.add(refuse)("nothing there")

    with pytest.raises(LookupError, match="nothing there") as caught:
        execution.get_result(timeout=WAIT_LIMIT)

    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames[:2]] == [sys._getframe().f_code.co_name, "get_result"]
    assert "background_loop.py" not in {Path(frame.filename).name for frame in frames}
    assert execution.error is not None
    assert "in refuse" in caught.value.__notes__[0]


@pytest.mark.usefixtures("worker")
def test_the_failed_attempts_can_be_read_while_the_retry_is_pending(docket: Docket) -> None:
    execution = docket.add(refuse_for_now)()

    def is_pending() -> bool:
        execution.sync()
        return execution.attempt == 2

    eventually_blocking(is_pending, "the retry is pending")
    assert execution.error == "LookupError: not yet"
    assert [attempt.attempt for attempt in execution.failed_attempts] == [1]


def test_a_result_that_does_not_come_in_time_is_a_timeout(docket: Docket) -> None:
    execution = docket.add(double)(1)

    with pytest.raises(TimeoutError, match="has not finished"):
        execution.get_result(timeout=timedelta(milliseconds=1))
    with pytest.raises(TimeoutError, match="has not finished"):
        execution.get_result(deadline=docket.now())


def test_an_added_task_has_its_call_and_its_state(docket: Docket) -> None:
    due = later()
    execution = docket.add(double, when=due, key="one")(number=1)

    assert (execution.key, execution.function, execution.function_name) == ("one", double, "double")
    assert (execution.args, execution.kwargs, execution.when) == ((), {"number": 1}, due)
    assert execution.get_argument("number") == 1
    assert execution.state is ExecutionState.SCHEDULED
    assert execution.disposition is Disposition.SCHEDULED
    assert (execution.attempt, execution.started_at, execution.completed_at) == (1, None, None)
    assert "double" in repr(execution)


def test_a_key_that_waits_keeps_its_task(docket: Docket) -> None:
    docket.add(double, when=later(), key="one")(1)
    again = docket.add(double, when=later(), key="one")(2)

    assert again.disposition is Disposition.ALREADY_SCHEDULED
    assert found(docket, "one").args == (1,)


def test_replace_takes_the_place_of_the_waiting_task(docket: Docket) -> None:
    docket.add(double, when=later(), key="one")(1)
    replaced = docket.replace(double, later(), "one")(2)

    assert replaced.disposition is Disposition.SCHEDULED
    assert found(docket, "one").args == (2,)


def test_a_registered_name_stands_for_its_function(docket: Docket) -> None:
    assert docket.add("double", when=later())(number=3).function is double
    with pytest.raises(TaskNotRegistered, match="did you mean 'double'"):
        docket.add("duoble")


def test_wrong_calls_fail_where_they_are_written(docket: Docket) -> None:
    add: Any = docket.add
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        add(double)(1, 2)
    with pytest.raises(TypeError, match="is not a datetime"):
        add(double, 5)
    with pytest.raises(Unserializable, match="cannot be serialised"):
        add(echo)(threading.Lock())
    assert docket.snapshot().total_tasks == 0


def test_the_second_pair_of_parentheses_is_not_forgotten_silently(docket: Docket) -> None:
    with pytest.warns(RuntimeWarning, match=r"docket.add\(double\) has scheduled nothing") as caught:
        docket.add(double)
    assert caught[0].filename == __file__


def test_a_pending_call_may_be_used_many_times(docket: Docket) -> None:
    add = docket.add(double, when=later())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(3):
            add(number)
        del add
    assert docket.snapshot().total_tasks == 3


def test_many_tasks_are_added_and_replaced(docket: Docket) -> None:
    due = later()
    added = docket.add_many((docket.call(double, due, str(n))(n) for n in range(5)), chunk_size=2)
    replaced = docket.replace_many([docket.call(double, due, str(n))(10 * n) for n in range(3)])

    assert [execution.key for execution in added] == ["0", "1", "2", "3", "4"]
    assert {execution.disposition for execution in [*added, *replaced]} == {Disposition.SCHEDULED}
    assert [found(docket, str(n)).args for n in range(5)] == [(0,), (10,), (20,), (3,), (4,)]
    with pytest.raises(ValueError, match="chunk_size=0"):
        docket.add_many([], chunk_size=0)
    with pytest.raises(ValueError, match="chunk_size=0"):
        docket.add_stream([], chunk_size=0)
    streamed = list(docket.add_stream((docket.call(double, due, f"s{n}")(n) for n in range(5)), chunk_size=2))
    assert [execution.key for execution in streamed] == [f"s{n}" for n in range(5)]


def test_a_call_of_many_that_cannot_be_stored_marks_only_its_execution(docket: Docket) -> None:
    good, bad, last = docket.add_many(docket.call(echo, later())(value) for value in (1, threading.Lock(), 3))

    assert bad.disposition is Disposition.FAILED
    assert isinstance(bad.schedule_exception, Unserializable)
    assert good.disposition is last.disposition is Disposition.SCHEDULED
    assert docket.snapshot().total_tasks == 2


@pytest.mark.usefixtures("worker")
def test_many_tasks_run_and_return(docket: Docket) -> None:
    added = docket.add_many(docket.call(double)(number) for number in range(20))
    assert [execution.get_result(timeout=WAIT_LIMIT) for execution in added] == [2 * n for n in range(20)]


@pytest.mark.usefixtures("worker")
def test_large_arguments_and_results_travel(docket: Docket) -> None:
    value = bytes(range(256)) * 4096
    docket.add(double)(1)
    assert docket.add(echo)(value).get_result(timeout=WAIT_LIMIT) == value


def test_arguments_that_are_too_large_are_refused(name: str, url: str) -> None:
    with Docket(name, url, max_payload=1000) as docket:
        for _ in range(2):
            with pytest.raises(PayloadTooLarge, match="more than the 1,000 allowed"):
                docket.add(echo)(b"x" * 1001)
        assert docket.snapshot().total_tasks == 0


def test_a_waiting_task_is_cancelled(docket: Docket) -> None:
    execution = docket.add(double, when=later())(1)
    docket.cancel(execution.key)
    docket.cancel("a key that nobody knows")

    with pytest.raises(ExecutionCancelled):
        execution.get_result(timeout=WAIT_LIMIT)
    execution.sync()
    assert execution.state is ExecutionState.CANCELLED


@pytest.mark.usefixtures("worker")
def test_a_running_task_is_cancelled(docket: Docket) -> None:
    execution = docket.add(stay)()

    def runs() -> bool:
        execution.sync()
        return execution.state is ExecutionState.RUNNING

    eventually_blocking(runs, "the task runs")
    docket.cancel(execution.key)
    with pytest.raises(ExecutionCancelled):
        execution.get_result(timeout=WAIT_LIMIT)


@pytest.mark.usefixtures("worker")
def test_a_task_is_found_by_its_key_and_its_result_is_read_there(docket: Docket) -> None:
    docket.add(double, key="one")(4)

    assert found(docket, "one").get_result(timeout=WAIT_LIMIT) == 8
    assert found(docket, "one").state is ExecutionState.COMPLETED
    assert docket.get_execution("two") is None


def test_clear_cancels_the_waiting_tasks(docket: Docket) -> None:
    for _ in range(3):
        docket.add(double, when=later())(1)
    assert docket.clear() == 3
    assert docket.snapshot().total_tasks == 0


def test_a_pause_holds_tasks_until_they_are_resumed(docket: Docket, worker: None) -> None:
    pause = docket.pause(double, "number", "==", 7)
    execution = docket.add(double)(7)
    assert docket.add(double)(8).get_result(timeout=WAIT_LIMIT) == 16
    eventually_blocking(lambda: [found.held for found in docket.pauses()] == [1], "it is held")
    execution.sync()
    assert execution.is_held
    assert (pause.function, pause.value, pause.held) == ("double", 7, 0)
    assert docket.resume(double, "number", "==", 7) == 1
    assert execution.get_result(timeout=WAIT_LIMIT) == 14
    with pytest.raises(NotPaused, match="nothing is"):
        docket.resume("*")


def test_a_strike_holds_single_tasks_and_batches_back(docket: Docket) -> None:
    docket.add(double, when=later())(7)
    docket.strike(double, "number", "==", 7)
    struck = [docket.add(double)(7), *docket.add_many([docket.call(double)(7)])]
    other = docket.add(double, when=later())(8)
    docket.restore(double, "number", "==", 7)
    again = docket.add(double, when=later())(7)

    assert [execution.disposition for execution in struck] == [Disposition.STRUCK, Disposition.STRUCK]
    assert other.disposition is again.disposition is Disposition.SCHEDULED
    assert docket.snapshot().total_tasks == 3


@pytest.mark.usefixtures("worker")
def test_workers_are_listed(docket: Docket) -> None:
    eventually_blocking(docket.workers, "a worker is listed")
    assert [worker.name for worker in docket.task_workers("double")] == [worker.name for worker in docket.workers()]


@pytest.mark.usefixtures("worker")
def test_events_are_followed_until_the_task_has_ended(docket: Docket) -> None:
    states = [event["state"] for event in docket.add(climb)(3).subscribe() if event["type"] == "state"]

    assert states[-1] is ExecutionState.COMPLETED
    with pytest.raises(TaskNotFound):
        next(docket.watch("a key that nobody knows"))


def test_a_follower_may_leave_early(docket: Docket) -> None:
    execution = docket.add(double, when=later())(1)
    events = execution.subscribe()

    assert next(events)["key"] == execution.key
    del events
    assert docket.get_execution(execution.key) is not None


@pytest.mark.usefixtures("worker")
def test_progress_is_read(docket: Docket) -> None:
    execution = docket.add(climb)(3)
    execution.get_result(timeout=WAIT_LIMIT)
    execution.sync()

    assert (execution.progress.current, execution.progress.total) == (3, 3)


def test_progress_is_written(docket: Docket) -> None:
    execution = docket.add(double, when=later())(1)
    progress = execution.progress
    progress.update(current=2, total=10, message="two")
    progress.increment(3)
    progress.set_total(20)

    other = found(docket, execution.key).progress
    other.sync()
    assert (other.current, other.total, other.message) == (5, 20, "two")
    assert other.updated_at is not None
    progress.set(1)
    progress.set_message(None)
    other.sync()
    assert (other.current, other.message) == (1, None)


class ThreadNoted:
    """Notes which threads encode and decode it, and whether they run an event loop."""

    encoded: ClassVar[list[tuple[threading.Thread, bool]]] = []
    decoded: ClassVar[list[tuple[threading.Thread, bool]]] = []

    def __reduce__(self) -> Any:
        self.encoded.append(noted())
        return (restore_noted, ())


def noted() -> tuple[threading.Thread, bool]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return threading.current_thread(), False
    return threading.current_thread(), True


def restore_noted() -> ThreadNoted:
    ThreadNoted.decoded.append(noted())
    return ThreadNoted()


@pytest.mark.usefixtures("worker")
def test_values_are_encoded_and_decoded_in_the_thread_of_the_caller(docket: Docket) -> None:
    here = (threading.current_thread(), False)
    docket.add(double)(1)
    ThreadNoted.encoded.clear()
    docket.add(echo, when=later())(ThreadNoted())
    docket.add_many([docket.call(echo, when=later())(ThreadNoted())])
    assert ThreadNoted.encoded == [here, here]

    execution = docket.add(echo)(ThreadNoted())
    ThreadNoted.decoded.clear()
    assert isinstance(execution.get_result(timeout=WAIT_LIMIT), ThreadNoted)
    assert ThreadNoted.decoded[-1] == here


def test_the_calls_of_a_batch_are_made_in_the_thread_of_the_caller(docket: Docket) -> None:
    threads: list[threading.Thread] = []

    def calls() -> Iterator[TaskCall]:
        threads.append(threading.current_thread())
        yield docket.call(double, later())(1)

    docket.add_many(calls())
    assert threads == [threading.current_thread()]


def found(docket: Docket, key: str) -> Execution[Any]:
    execution = docket.get_execution(key)
    assert execution is not None
    return execution
