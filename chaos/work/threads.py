"""Plain functions, which run in threads. A thread cannot be stopped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from docket import Timeout

from .base import FAILED, Producer, Work
from .body import thread_body

LIMIT_SECONDS = 0.5


def in_thread(token: str, seconds: float) -> str:
    """Returns the name of its run."""
    with thread_body(token) as run:
        time.sleep(seconds)
    return run


def cancelled_in_thread(token: str, seconds: float) -> None:
    with thread_body(token):
        time.sleep(seconds)


def overdue_in_thread(token: str, seconds: float, timeout: Timeout = Timeout(timedelta(seconds=LIMIT_SECONDS))) -> None:
    """Returns long after its run was given up."""
    with thread_body(token, limit=LIMIT_SECONDS):
        time.sleep(seconds)


class InThread(Work):
    name = "in a thread"
    share = 5.0
    functions = (in_thread,)

    async def produce(self, producer: Producer) -> None:
        seconds = producer.random.choice([0.0, 0.0, 0.02, 0.2, 1.0, 3.0])
        await producer.add(in_thread, producer.new_token(), seconds)


class CancelledInThread(Work):
    name = "cancelled in a thread"
    share = 0.5
    functions = (cancelled_in_thread,)

    async def produce(self, producer: Producer) -> None:
        token = producer.new_token()
        if await producer.add(cancelled_in_thread, token, 3.0):
            await producer.sleep(0.05, 2.0)
            await producer.cancel(token)


class OverdueInThread(Work):
    name = "overdue in a thread"
    share = 0.7
    functions = (overdue_in_thread,)

    async def produce(self, producer: Producer) -> None:
        await producer.add(overdue_in_thread, producer.new_token(), producer.random.choice([1.0, 2.0, 5.0]))

    def endings(self, function: str, args: Sequence[Any]) -> set[str]:
        return {FAILED}
