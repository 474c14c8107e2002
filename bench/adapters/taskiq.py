"""`taskiq worker --workers 1 --max-async-tasks …` on taskiq-redis's `RedisStreamBroker`, the one
with acknowledgements, with defaults; `RedisAsyncResultBackend` with its recommended expiry where
results are measured, none (the default) otherwise. No way to enqueue in bulk: 20 calls at a time
are under way. `wait_result` polls every 0.2 s by default. Scheduled tasks:
`ListRedisScheduleSource` and a `taskiq scheduler` process beside the worker, with
`--update-interval 1` (its default is to look once a minute)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime

from taskiq import TaskiqScheduler
from taskiq_redis import ListRedisScheduleSource, RedisAsyncResultBackend, RedisStreamBroker

from bench.adapters.marks import shared_marks
from bench.adapters.serving import CONCURRENCY, RESULTS, URL, Producer, at_once, run_program

marks = shared_marks()
# From the start of the stream, since the worker joins after the tasks were enqueued.
broker = RedisStreamBroker(URL, consumer_id="0")
if RESULTS:
    broker = broker.with_result_backend(RedisAsyncResultBackend(URL, result_ex_time=1000))
source = ListRedisScheduleSource(URL)
scheduler = TaskiqScheduler(broker, [source])


@broker.task
async def mark(number: int) -> None:
    marks.mark(number)


@broker.task
async def echo(number: int) -> int:
    marks.mark(number)
    return number


@broker.task
async def sleeper(number: int, seconds: float) -> None:
    marks.begin(number)
    await asyncio.sleep(seconds)
    marks.end(number)


class TaskiqProducer(Producer):
    async def open(self) -> None:
        await broker.startup()

    async def close(self) -> None:
        await broker.shutdown()

    async def enqueue(self, number: int) -> None:
        await mark.kiq(number)

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        await at_once(sleeper.kiq(number, seconds) for number in numbers)

    async def enqueue_at(self, number: int, when: datetime) -> None:
        await mark.schedule_by_time(source, when, number)

    async def round_trip(self, number: int) -> int:
        task = await echo.kiq(number)
        return (await task.wait_result(timeout=10)).return_value


produce = TaskiqProducer


def work() -> None:
    if RESULTS:
        scheduling = ["scheduler", "bench.adapters.taskiq:scheduler", "--log-level", "WARNING"]
        subprocess.Popen([sys.executable, "-m", "taskiq", *scheduling, "--update-interval", "1"])
    run_program(
        *("-m", "taskiq", "worker", "bench.adapters.taskiq:broker", "--log-level", "WARNING"),
        *("--workers", "1", "--max-async-tasks", str(CONCURRENCY)),
    )
