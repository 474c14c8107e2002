"""`rq worker-pool` of `SimpleWorker`s, one process per slot, since an RQ worker runs one job at a
time (the default `Worker`, which also forks for every job, is nine times slower here); with more
than 10 slots it is not run. In bulk: `enqueue_many`. Where scheduled jobs and results are measured:
`rq worker --with-scheduler` with `SimpleWorker`, since a pool has no scheduler. `result_ttl=0`
where results are not measured. Times of scheduled jobs are whole seconds, here rounded up. With its
default log: INFO, three lines per job."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from redis import Redis
from rq import Queue

from bench.adapters.marks import shared_marks
from bench.adapters.serving import (
    BLOCK,
    COMPUTE,
    CONCURRENCY,
    DEFAULT_LOG,
    NOTHING,
    RESULTS,
    URL,
    Producer,
    run_program,
)

RESULT_TTL = 500 if RESULTS else 0
marks = shared_marks()


def mark(number: int) -> None:
    marks.mark(number)


def echo(number: int) -> int:
    marks.mark(number)
    return number


def sleeper(number: int, seconds: float) -> None:
    marks.begin(number)
    time.sleep(seconds)
    marks.end(number)


def plain_mark(number: int, seconds: float) -> None:
    marks.mark(number)


def burner(number: int, seconds: float) -> None:
    marks.compute(number, seconds)


PLAIN = {NOTHING: plain_mark, BLOCK: sleeper, COMPUTE: burner}


class RqProducer(Producer):
    async def open(self) -> None:
        self.redis = Redis.from_url(URL)
        self.queue = Queue(connection=self.redis)

    async def close(self) -> None:
        self.redis.close()

    async def enqueue(self, number: int) -> None:
        self.queue.enqueue(mark, number, result_ttl=RESULT_TTL)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        self._enqueue_many(mark, [(number,) for number in numbers])

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        self._enqueue_many(sleeper, [(number, seconds) for number in numbers])

    async def enqueue_plain(self, kind: str, numbers: Sequence[int], seconds: float) -> None:
        self._enqueue_many(PLAIN[kind], [(number, seconds) for number in numbers])

    def _enqueue_many(self, function: Callable[..., None], calls: list[tuple[Any, ...]]) -> None:
        self.queue.enqueue_many([Queue.prepare_data(function, call, result_ttl=RESULT_TTL) for call in calls])

    async def enqueue_at(self, number: int, when: datetime) -> None:
        whole = datetime.fromtimestamp(math.ceil(when.timestamp()), UTC)
        self.queue.enqueue_at(whole, mark, number, result_ttl=RESULT_TTL)

    async def round_trip(self, number: int) -> int:
        result = self.queue.enqueue(echo, number, result_ttl=RESULT_TTL).latest_result(timeout=10)
        if result is None:
            raise TimeoutError("no result after 10 s")
        return result.return_value


produce = RqProducer


def work() -> None:
    simple = ("--url", URL, "--worker-class", "rq.SimpleWorker", *(() if DEFAULT_LOG else ("--quiet",)))
    if RESULTS:
        run_program("-m", "rq.cli", "worker", *simple, "--with-scheduler")
    run_program("-m", "rq.cli", "worker-pool", *simple, "--num-workers", str(CONCURRENCY))
