"""Helpers for asyncio: cancel tasks reliably, pause
between attempts, and call what blocks in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

_AGAIN_SECONDS = 0.2
# The last wait for cancelled tasks, once it is late.
_LATE_SECONDS = 0.05


async def cancel_and_wait(
    tasks: Iterable[asyncio.Task[Any]], message: str, is_late: Callable[[], bool] = lambda: False
) -> None:
    """Cancels the tasks and returns when all have ended, in whatever way, or when it is too late to
    wait for them. Every task is cancelled at least once.

    One cancel is not always enough: on Python 3.11 `asyncio.wait_for`, which redis-py uses,
    swallows a cancel that arrives just when its awaitable finishes. If the caller is cancelled, the
    cancel is raised after the tasks have ended.
    """
    # A task whose event loop is closed will never run again.
    pending = {task for task in tasks if not task.done() and not task.get_loop().is_closed()}
    interrupted: asyncio.CancelledError | None = None
    is_last = False
    while pending and not is_last:
        is_last = is_late()
        for task in pending:
            task.cancel(message)
        try:
            _, pending = await asyncio.wait(pending, timeout=_LATE_SECONDS if is_last else _AGAIN_SECONDS)
        except asyncio.CancelledError as error:
            interrupted = error
            pending = {task for task in pending if not task.done()}
    if interrupted is not None:
        raise interrupted


async def wait_out(task: asyncio.Task[Any]) -> None:
    """Waits for the end of the task and ignores cancels of the caller."""
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])


class Backoff:
    """Growing pauses with full jitter, so that a fleet does not come back all at once."""

    def __init__(self, first: float = 0.05, most: float = 5.0) -> None:
        self._first = first
        self._most = most
        self._next = first

    def reset(self) -> None:
        self._next = self._first

    def next_pause(self) -> float:
        pause = random.uniform(self._first / 2, self._next)
        self._next = min(self._next * 2, self._most)
        return pause

    async def pause(self) -> None:
        await asyncio.sleep(self.next_pause())


T = TypeVar("T")


def start_in_thread(function: Callable[..., T], *args: Any) -> Future[T]:
    """Calls the function in a new thread, which does not keep
    the process alive. The future cannot be cancelled."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=f"docket - {getattr(function, '__name__', 'thread')}", daemon=True).start()
    return future


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Runs a blocking call in a thread and returns its result. If the caller is cancelled, the
    thread goes on."""
    return await asyncio.wrap_future(start_in_thread(function, *args))
