"""`taskiq worker --workers 1 --max-async-tasks …` (and as many `--max-threadpool-threads` for plain
functions; a worker process per core for functions that compute) on taskiq-redis's
`RedisStreamBroker`, the one with acknowledgements, with defaults; `RedisAsyncResultBackend` with
its recommended expiry where results are measured, none (the default) otherwise. No way to enqueue
in bulk: 20 calls at a time are under way. `wait_result` polls every 0.2 s by default. Scheduled
tasks: `ListRedisScheduleSource` and a `taskiq scheduler` process beside the worker, with
`--update-interval 1` (its default is to look once a minute). With its default log: INFO, a line per
task."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime

from taskiq import TaskiqScheduler
from taskiq_redis import ListRedisScheduleSource, RedisAsyncResultBackend, RedisStreamBroker

from bench.adapters.marks import shared_marks
from bench.adapters.serving import (
    BLOCK,
    COMPUTE,
    CONCURRENCY,
    DEFAULT_LOG,
    NOTHING,
    PROCESSES,
    RESULTS,
    URL,
    Producer,
    at_once,
    run_program,
)

SLOTS = ("--workers", "1", "--max-async-tasks", str(CONCURRENCY), "--max-threadpool-threads", str(CONCURRENCY))
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


@broker.task
def plain_mark(number: int, seconds: float) -> None:
    marks.mark(number)


@broker.task
def plain_sleeper(number: int, seconds: float) -> None:
    marks.begin(number)
    time.sleep(seconds)
    marks.end(number)


@broker.task
def burner(number: int, seconds: float) -> None:
    marks.compute(number, seconds)


PLAIN = {NOTHING: plain_mark, BLOCK: plain_sleeper, COMPUTE: burner}


class TaskiqProducer(Producer):
    async def open(self) -> None:
        await broker.startup()

    async def close(self) -> None:
        await broker.shutdown()

    async def enqueue(self, number: int) -> None:
        await mark.kiq(number)

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        await at_once(sleeper.kiq(number, seconds) for number in numbers)

    async def enqueue_plain(self, kind: str, numbers: Sequence[int], seconds: float) -> None:
        await at_once(PLAIN[kind].kiq(number, seconds) for number in numbers)

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
        *("-m", "taskiq", "worker", "bench.adapters.taskiq:broker"),
        *(() if DEFAULT_LOG else ("--log-level", "WARNING")),
        *(("--workers", str(CONCURRENCY)) if PROCESSES else SLOTS),
    )
