"""`dramatiq --processes 1 --threads …` (faster here than gevent) with the Redis broker and
defaults; for functions that compute a process per core with 8 threads, its default; results
(`Results` with `RedisBackend`) only where they are measured. No way to enqueue in bulk: one after
the other. With its default log: INFO, a line when a process starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

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
    run_program,
)

marks = shared_marks()
broker = RedisBroker(url=URL)
if RESULTS:
    broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)


@dramatiq.actor
def mark(number: int) -> None:
    marks.mark(number)


@dramatiq.actor(**({"store_results": True} if RESULTS else {}))
def echo(number: int) -> int:
    marks.mark(number)
    return number


@dramatiq.actor
def sleeper(number: int, seconds: float) -> None:
    marks.begin(number)
    time.sleep(seconds)
    marks.end(number)


@dramatiq.actor
def plain_mark(number: int, seconds: float) -> None:
    marks.mark(number)


@dramatiq.actor
def burner(number: int, seconds: float) -> None:
    marks.compute(number, seconds)


PLAIN = {NOTHING: plain_mark, BLOCK: sleeper, COMPUTE: burner}


class DramatiqProducer(Producer):
    async def enqueue(self, number: int) -> None:
        mark.send(number)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            mark.send(number)

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        for number in numbers:
            sleeper.send(number, seconds)

    async def enqueue_plain(self, kind: str, numbers: Sequence[int], seconds: float) -> None:
        for number in numbers:
            PLAIN[kind].send(number, seconds)

    async def enqueue_at(self, number: int, when: datetime) -> None:
        delay = (when - datetime.now(UTC)).total_seconds()
        mark.send_with_options(args=(number,), delay=round(delay * 1000))

    async def round_trip(self, number: int) -> int:
        return echo.send(number).get_result(block=True, timeout=10_000)


produce = DramatiqProducer


def work() -> None:
    slots = ("--processes", str(CONCURRENCY)) if PROCESSES else ("--processes", "1", "--threads", str(CONCURRENCY))
    run_program("-m", "dramatiq", "bench.adapters.dramatiq", *slots, *(() if DEFAULT_LOG else ("--skip-logging",)))
