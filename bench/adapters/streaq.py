"""`Worker(concurrency=…).run_sync()`, else defaults (`prefetch` equal to the concurrency), logs of
tasks silenced. In bulk: `enqueue_many`. Results are kept for 5 minutes by default; `ttl=0` where
they are not measured. With its default log: INFO, as its command sets it, two lines per task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime

from streaq import Worker

from bench.adapters.marks import shared_marks
from bench.adapters.serving import CONCURRENCY, DEFAULT_LOG, RESULTS, URL, Producer

marks = shared_marks()
worker = Worker(redis_url=URL, concurrency=CONCURRENCY)
TTL = 300 if RESULTS else 0


@worker.task(silent=True, ttl=TTL)
async def mark(number: int) -> None:
    marks.mark(number)


@worker.task(silent=True, ttl=TTL)
async def echo(number: int) -> int:
    marks.mark(number)
    return number


@worker.task(silent=True, ttl=TTL)
async def sleeper(number: int, seconds: float) -> None:
    marks.begin(number)
    await asyncio.sleep(seconds)
    marks.end(number)


class StreaqProducer(Producer):
    async def open(self) -> None:
        await worker.__aenter__()

    async def close(self) -> None:
        await worker.__aexit__(None, None, None)

    async def enqueue(self, number: int) -> None:
        await mark.enqueue(number)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await worker.enqueue_many([mark.enqueue(number) for number in numbers])

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        await worker.enqueue_many([sleeper.enqueue(number, seconds) for number in numbers])

    async def enqueue_at(self, number: int, when: datetime) -> None:
        await mark.enqueue(number).start(schedule=when)

    async def round_trip(self, number: int) -> int:
        task = await echo.enqueue(number)
        return (await task.result(timeout=10)).result


produce = StreaqProducer


def work() -> None:
    if DEFAULT_LOG:
        logging.basicConfig(level=logging.INFO)
    else:
        logging.disable(logging.INFO)
    worker.run_sync()
