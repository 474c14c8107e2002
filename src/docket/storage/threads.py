"""Threads of docket's own for work that blocks.

asyncio's default executor belongs to users: if their tasks used all of its threads, docket would
have to wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def start(function: Callable[..., T], *args: Any) -> Future[T]:
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
    return await asyncio.wrap_future(start(function, *args))
