"""Adds single tasks from the threads of the callers, without the background event loop.

Two changes of threads cost more than the rest of an `add`. So callers send their tasks themselves,
over a blocking connection. One thread at a time has the turn: it sends for all that wait. A thread
that sends for others wakes them when the answer is there, and passes the turn to the first one that
has come meanwhile. So a call costs one change of threads, and none if its thread is alone.
"""

from __future__ import annotations

import copy
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from docket.docket import Docket
from docket.errors import ServerUnreachable
from docket.execution import Execution
from docket.ledger import EnqueueResult, NewTask
from docket.ledger.calls import batch_end
from docket.ledger.tasks import ENQUEUE_BATCH
from docket.scheduler import weigh
from docket.storage.client.clients import CallerClient
from docket.storage.server import ANSWER_SECONDS

from .background_loop import LoopThread

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class NotSent(Exception):
    """The item was not sent, and will not be."""


class SenderGone(Exception):
    """The thread that sent the item was interrupted, so nobody knows whether the item arrived."""


class _Entry:
    """The item of one thread."""

    __slots__ = ("answer", "error", "has_turn", "is_over", "item", "woken")

    def __init__(self, item: Any) -> None:
        self.item = item
        self.answer: Any = None
        self.error: Exception | None = None
        self.is_over = False
        self.has_turn = False
        # A bare lock wakes its thread sooner than an event of the standard library.
        self.woken = threading.Lock()
        self.woken.acquire()

    def end(self, answer: Any, error: Exception | None) -> None:
        self.answer, self.error, self.is_over = answer, error, True
        self.woken.release()


class SharedRequests(Generic[Item, Answer]):
    """Sends the items of many threads. One thread at a time calls `send`."""

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Sequence[Answer]],
        *,
        most: int,
        weigh: Callable[[Item], int],
        patience: float,
    ) -> None:
        self._send = send
        self._most = most
        self._weigh = weigh
        # A thread that was interrupted at the worst moment keeps the turn for ever. Others wait for
        # it no longer than this.
        self._patience = patience
        self._turn = threading.Lock()
        # Guards the queue, and who has the turn. It is never held during a request.
        self._lock = threading.Lock()
        self._queue: deque[_Entry] = deque()
        self._is_closed = False
        self._last_size = 0

    def call(self, item: Item) -> Answer:
        """The answer to an item. Raises the errors of `send`, SenderGone, or NotSent."""
        entry = _Entry(item)
        with self._lock:
            if self._is_closed:
                raise NotSent
            self._queue.append(entry)
            entry.has_turn = self._turn.acquire(blocking=False)
        try:
            while not entry.is_over:
                if entry.has_turn:
                    self._send_batch()
                elif not entry.woken.acquire(timeout=self._patience):
                    self._stop_waiting(entry)
        finally:
            # An exception of the caller, such as KeyboardInterrupt, ends the wait.
            self._leave(entry)
        if entry.error is not None:
            raise entry.error
        return entry.answer

    def close(self, seconds: float) -> None:
        """Waits for the request that is under way. Calls that wait, and later calls, raise
        NotSent."""
        with self._lock:
            self._is_closed = True
            waiting = [entry for entry in self._queue if not entry.has_turn]
            self._queue = deque(entry for entry in self._queue if entry.has_turn)
        for entry in waiting:
            entry.end(None, NotSent())
        self._turn.acquire(timeout=seconds)

    def _send_batch(self) -> None:
        if self._last_size > 1:
            # The threads of the last request have just been woken. Without this, the first of them
            # would send its next item alone.
            time.sleep(0)
        with self._lock:
            end = batch_end(self._queue, 0, self._most, lambda entry: self._weigh(entry.item))
            batch = [self._queue.popleft() for _ in range(end)]
        self._last_size = end
        answers: Sequence[Answer | None] = [None] * len(batch)
        error: Exception | None = SenderGone()
        try:
            answers, error = self._send([entry.item for entry in batch]), None
        except Exception as problem:
            error = problem
        finally:
            for entry, answer in zip(batch, answers, strict=True):
                entry.end(answer, error and _copy(error))

    def _leave(self, entry: _Entry) -> None:
        """Passes the turn to the first entry that waits, if this one has it."""
        with self._lock:
            if not entry.is_over and entry in self._queue:
                self._queue.remove(entry)
            if not entry.has_turn:
                return
            if not self._queue:
                self._turn.release()
                return
            following = self._queue[0]
            following.has_turn = True
        following.woken.release()

    def _stop_waiting(self, entry: _Entry) -> None:
        with self._lock:
            if entry.has_turn or entry.is_over:
                return
            self._is_closed = True
            entry.error = NotSent() if entry in self._queue else SenderGone()
            entry.is_over = True
            if entry in self._queue:
                self._queue.remove(entry)


def _copy(error: Exception) -> Exception:
    """Each thread raises an exception of its own: its traceback is that of the thread."""
    try:
        return copy.copy(error)
    except Exception:
        return error


class CallerAdds:
    """The blocking connection of one docket, which its callers share."""

    def __init__(self, docket: Docket, loop_thread: LoopThread) -> None:
        self._docket = docket
        self._loop_thread = loop_thread
        # A thread may wait for two requests: the one that is under way, and its own.
        self._requests: SharedRequests[NewTask, EnqueueResult] = SharedRequests(
            self._send, most=ENQUEUE_BATCH, weigh=weigh, patience=3 * ANSWER_SECONDS
        )
        self._client: CallerClient | None = None
        self._is_closed = False

    # twin of: schedule (scheduler.py)
    def send(self, execution: Execution, task: NewTask) -> bool:
        """Schedules a task. If it returns False, the background loop has to do that."""
        scheduler = self._docket.scheduler
        if not self._is_usual() or task.payload is not None or not scheduler.is_ready_for_threads():
            return False
        try:
            result = self._requests.call(task)
        except (ServerUnreachable, NotSent, SenderGone) as error:
            result = self._repeat(execution, task, error)
        scheduler.note(execution, result, task.replace)
        return True

    def _repeat(self, execution: Execution, task: NewTask, error: Exception) -> EnqueueResult:
        if not isinstance(error, ServerUnreachable):
            sent = isinstance(error, SenderGone)
            error = ServerUnreachable("the thread that sent the task was interrupted" if sent else "not sent")
            error.maybe_stored = sent
        return self._loop_thread.run(functools.partial(self._docket.scheduler.repeat, execution, task, error))

    def _send(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        if self._is_closed:
            raise NotSent
        return self._docket.ledger.tasks.enqueue_blocking(self._open_client(), tasks)

    def _is_usual(self) -> bool:
        """Whether the docket has one known server and shows the real time."""
        server = self._docket.server
        return server.is_reached and not server.is_cluster and not server.clock.is_frozen

    def _open_client(self) -> CallerClient:
        if self._client is None:
            ledger = self._docket.ledger
            self._client = CallerClient(ledger.server.threaded_client(lambda: ANSWER_SECONDS, ledger.keys.stream))
        return self._client

    def close(self) -> None:
        """Waits for the request that is under way."""
        self._requests.close(ANSWER_SECONDS)
        self.abandon()

    def abandon(self) -> None:
        """Closes the connection. In a forked child this closes only the child's copy."""
        self._is_closed = True
        client, self._client = self._client, None
        if client is not None:
            client.close()
