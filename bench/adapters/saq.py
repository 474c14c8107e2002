"""`Worker(concurrency=…)` with defaults. No way to enqueue in bulk without waiting for the results:
20 calls at a time are under way, as many as its queue sends at once (`max_concurrent_ops`). Results
are always kept, for 10 minutes, and waited for with `job.refresh(until_complete=…)`, which is
faster than `apply`. Times of scheduled jobs are whole seconds, here rounded up. Its command
logs no jobs by default."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from saq import Queue, Worker

from bench.adapters.marks import shared_marks
from bench.adapters.serving import CONCURRENCY, URL, Producer, at_once

marks = shared_marks()


async def mark(context: Any, *, number: int) -> None:
    marks.mark(number)


async def echo(context: Any, *, number: int) -> int:
    marks.mark(number)
    return number


async def sleeper(context: Any, *, number: int, seconds: float) -> None:
    marks.begin(number)
    await asyncio.sleep(seconds)
    marks.end(number)


class SaqProducer(Producer):
    async def open(self) -> None:
        self.queue = Queue.from_url(URL)
        await self.queue.connect()

    async def close(self) -> None:
        await self.queue.disconnect()

    async def enqueue(self, number: int) -> None:
        await self.queue.enqueue("mark", number=number)

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        await at_once(self.queue.enqueue("sleeper", number=number, seconds=seconds) for number in numbers)

    async def enqueue_at(self, number: int, when: datetime) -> None:
        await self.queue.enqueue("mark", number=number, scheduled=math.ceil(when.timestamp()))

    async def round_trip(self, number: int) -> int:
        job = await self.queue.enqueue("echo", number=number)
        assert job is not None
        while not job.completed:
            # A job that ends before the subscription is not
            # noticed, so the wait is short and repeated.
            with contextlib.suppress(TimeoutError):
                await job.refresh(until_complete=0.2)
        return job.result


produce = SaqProducer


async def run_worker() -> None:
    worker = Worker(Queue.from_url(URL), functions=[mark, echo, sleeper], concurrency=CONCURRENCY)
    await worker.queue.connect()
    await worker.start()


def work() -> None:
    asyncio.run(run_worker())
