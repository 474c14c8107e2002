"""`huey_consumer --workers …`, thread workers (its default kind, and faster here than greenlets),
else defaults: blocking reads, the scheduler looks once a second. `RedisHuey` with
`notify_result=True`, its option for low latency, where results are measured, and without results
otherwise. No way to enqueue in bulk: one after the other. It acknowledges nothing: a task is gone
from Redis when a worker takes it. With its default log: INFO, two lines per task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from huey import RedisHuey

from bench.adapters.marks import shared_marks
from bench.adapters.serving import CONCURRENCY, DEFAULT_LOG, RESULTS, URL, Producer, run_program

marks = shared_marks()
huey = RedisHuey("bench", url=URL, notify_result=RESULTS, results=RESULTS)


@huey.task()
def mark(number: int) -> None:
    marks.mark(number)


@huey.task()
def echo(number: int) -> int:
    marks.mark(number)
    return number


@huey.task()
def sleeper(number: int, seconds: float) -> None:
    marks.begin(number)
    time.sleep(seconds)
    marks.end(number)


class HueyProducer(Producer):
    async def enqueue(self, number: int) -> None:
        mark(number)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            mark(number)

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        for number in numbers:
            sleeper(number, seconds)

    async def enqueue_at(self, number: int, when: datetime) -> None:
        mark.schedule((number,), eta=when)

    async def round_trip(self, number: int) -> int:
        return echo(number).get(blocking=True, timeout=10)


produce = HueyProducer


def work() -> None:
    run_program(
        *("-m", "huey.bin.huey_consumer", "bench.adapters.huey.huey", "--workers", str(CONCURRENCY)),
        *(() if DEFAULT_LOG else ("--quiet",)),
    )
