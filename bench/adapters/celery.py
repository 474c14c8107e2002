"""`celery worker --without-gossip --without-mingle`; its default pool, prefork, with 10 slots and
for functions that compute (a process per core), and the thread pool (`-P threads`, faster here than
gevent) with more, since prefork has a process per slot. Redis as broker, JSON. A result backend,
also Redis, only where results are measured. No way to enqueue in bulk: one after the other, through
one producer of the pool. Its default log level is WARNING: no line per task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from celery import Celery

from bench.adapters.marks import shared_marks
from bench.adapters.serving import BLOCK, COMPUTE, CONCURRENCY, NOTHING, RESULTS, URL, Producer, run_program

marks = shared_marks()
app = Celery("bench", broker=URL, backend=URL if RESULTS else None)
app.conf.broker_connection_retry_on_startup = True


@app.task(ignore_result=True)
def mark(number: int) -> None:
    marks.mark(number)


@app.task
def echo(number: int) -> int:
    marks.mark(number)
    return number


@app.task(ignore_result=True)
def sleeper(number: int, seconds: float) -> None:
    marks.begin(number)
    time.sleep(seconds)
    marks.end(number)


@app.task(ignore_result=True)
def plain_mark(number: int, seconds: float) -> None:
    marks.mark(number)


@app.task(ignore_result=True)
def burner(number: int, seconds: float) -> None:
    marks.compute(number, seconds)


PLAIN = {NOTHING: plain_mark, BLOCK: sleeper, COMPUTE: burner}


class CeleryProducer(Producer):
    async def enqueue(self, number: int) -> None:
        mark.delay(number)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                mark.apply_async((number,), producer=producer)

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                sleeper.apply_async((number, seconds), producer=producer)

    async def enqueue_plain(self, kind: str, numbers: Sequence[int], seconds: float) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                PLAIN[kind].apply_async((number, seconds), producer=producer)

    async def enqueue_at(self, number: int, when: datetime) -> None:
        mark.apply_async((number,), eta=when)

    async def round_trip(self, number: int) -> int:
        return echo.delay(number).get(timeout=10)


produce = CeleryProducer


def work() -> None:
    run_program(
        *("-m", "celery", "-A", "bench.adapters.celery", "worker", "--without-gossip"),
        *("--without-mingle", "-P", "prefork" if CONCURRENCY <= 10 else "threads", "-c", str(CONCURRENCY)),
    )
