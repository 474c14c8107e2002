"""Threads that share requests, without a docket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from docket.sync.caller_adds import NotSent, SenderGone, SharedRequests
from tests.waiting import SECONDS, eventually_blocking


class Line:
    """Sends numbers, and answers with their doubles. Each request waits for a pass."""

    def __init__(self, patience: float = SECONDS, most: int = 100) -> None:
        self.sent: list[list[int]] = []
        self.passes = threading.Semaphore(0)
        self.error: BaseException | None = None
        self.requests: SharedRequests[int, int] = SharedRequests(
            self._send, most=most, weigh=lambda number: 1, patience=patience
        )

    def _send(self, items: Sequence[int]) -> list[int]:
        self.sent.append(list(items))
        assert self.passes.acquire(timeout=SECONDS)
        error, self.error = self.error, None
        if error is not None:
            raise error
        return [2 * number for number in items]

    def waiting(self) -> int:
        return len(vars(self.requests)["_queue"])


class Callers:
    """Threads that call one after the other."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.pool = ThreadPoolExecutor(20)
        self.answers: list[Future[int]] = []

    def call(self, *numbers: int) -> list[Future[int]]:
        """Returns when the calls wait, or are under way."""
        for number in numbers:
            before = len(self._line.sent) + self._line.waiting()
            self.answers.append(self.pool.submit(self._line.requests.call, number))
            eventually_blocking(lambda: len(self._line.sent) + self._line.waiting() > before, "the call waits")  # noqa: B023
        return self.answers[-len(numbers) :]


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def callers(line: Line) -> Callers:
    return Callers(line)


def result(answer: Future[int]) -> int:
    return answer.result(SECONDS)


def test_a_thread_that_is_alone_sends_its_item_at_once(line: Line) -> None:
    line.passes.release(2)
    assert [line.requests.call(1), line.requests.call(2)] == [2, 4]
    assert line.sent == [[1], [2]]


def test_threads_that_come_during_a_request_share_the_next_one(line: Line, callers: Callers) -> None:
    answers = callers.call(1, 2, 3, 4)
    line.passes.release(2)
    assert list(map(result, answers)) == [2, 4, 6, 8]
    assert line.sent == [[1], [2, 3, 4]]


def test_a_request_has_at_most_so_many_items() -> None:
    line = Line(most=2)
    answers = Callers(line).call(1, 2, 3, 4)
    line.passes.release(3)
    assert list(map(result, answers)) == [2, 4, 6, 8]
    assert line.sent == [[1], [2, 3], [4]]


def test_an_error_is_raised_in_each_thread_of_the_request(line: Line, callers: Callers) -> None:
    first, second, third = callers.call(1, 2, 3)
    line.passes.release()
    assert result(first) == 2
    line.error = ValueError("no")
    line.passes.release()
    errors = [answer.exception(SECONDS) for answer in (second, third)]
    assert [repr(error) for error in errors] == ["ValueError('no')"] * 2
    assert errors[0] is not errors[1]
    line.passes.release()
    assert line.requests.call(4) == 8


def test_a_thread_that_is_interrupted_while_it_sends_leaves_nobody_behind(line: Line, callers: Callers) -> None:
    first, second, third, *_ = callers.call(1, 2, 3)
    line.passes.release()
    assert result(first) == 2
    eventually_blocking(lambda: len(line.sent) == 2, "the second request is under way")
    (fourth,) = callers.call(4)
    line.error = KeyboardInterrupt()
    line.passes.release(2)
    # The second thread sends for the third.
    assert isinstance(second.exception(SECONDS), KeyboardInterrupt)
    assert isinstance(third.exception(SECONDS), SenderGone)
    assert result(fourth) == 8


def test_a_closed_object_sends_nothing_more(line: Line, callers: Callers) -> None:
    first, second = callers.call(1, 2)
    closing = callers.pool.submit(line.requests.close, SECONDS)
    assert isinstance(second.exception(SECONDS), NotSent)
    assert not closing.done()
    line.passes.release()
    assert result(first) == 2
    closing.result(SECONDS)
    with pytest.raises(NotSent):
        line.requests.call(3)
    assert line.sent == [[1]]


def test_nobody_waits_for_ever_for_a_turn_that_does_not_come() -> None:
    """Its owner was interrupted at the worst moment."""
    line = Line(patience=0.01)
    turn: threading.Lock = vars(line.requests)["_turn"]
    turn.acquire()
    calls: list[Callable[[], int]] = [lambda: line.requests.call(1), lambda: line.requests.call(2)]
    for call in calls:
        with pytest.raises(NotSent):
            call()
    assert not line.waiting()
