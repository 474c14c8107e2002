"""Threads that call while a request is under way share the next one.

One thread at a time has the turn: it sends for all that wait. A thread that sends for others wakes
them when the answer is there, and passes the turn to the first one that has come meanwhile. So a
call costs one change of threads, and none if its thread is alone.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from docket.ledger.batcher import batch_end

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
