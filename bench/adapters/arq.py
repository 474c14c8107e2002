"""`Worker(max_jobs=…)` with defaults (`poll_delay` 0.5 s, `keep_result` 1 h), except
`keep_result=0` where results are not measured. No way to enqueue in bulk: 20 calls at a time are
under way. `Job.result` polls every 0.5 s by default. With its default log: what the
command `arq` sets up, INFO, two lines per job."""

from __future__ import annotations

import asyncio
import logging.config
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from arq.connections import ArqRedis, RedisSettings, create_pool
from arq.logs import default_log_config
from arq.worker import Worker

from bench.adapters.marks import shared_marks
from bench.adapters.serving import CONCURRENCY, DEFAULT_LOG, RESULTS, URL, Producer, at_once

SETTINGS = RedisSettings.from_dsn(URL)
marks = shared_marks()


async def mark(context: dict[Any, Any], number: int) -> None:
    marks.mark(number)


async def echo(context: dict[Any, Any], number: int) -> int:
    marks.mark(number)
    return number


async def sleeper(context: dict[Any, Any], number: int, seconds: float) -> None:
    marks.begin(number)
    await asyncio.sleep(seconds)
    marks.end(number)


class ArqProducer(Producer):
    async def open(self) -> None:
        self.pool: ArqRedis = await create_pool(SETTINGS)

    async def close(self) -> None:
        await self.pool.aclose()

    async def enqueue(self, number: int) -> None:
        await self.pool.enqueue_job("mark", number)

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        await at_once(self.pool.enqueue_job("sleeper", number, seconds) for number in numbers)

    async def enqueue_at(self, number: int, when: datetime) -> None:
        await self.pool.enqueue_job("mark", number, _defer_until=when)

    async def round_trip(self, number: int) -> int:
        job = await self.pool.enqueue_job("echo", number)
        assert job is not None
        return await job.result(timeout=10)


produce = ArqProducer


def work() -> None:
    asyncio.set_event_loop(asyncio.new_event_loop())
    if DEFAULT_LOG:
        logging.config.dictConfig(default_log_config(verbose=False))
    worker = Worker(
        functions=[mark, echo, sleeper],
        redis_settings=SETTINGS,
        max_jobs=CONCURRENCY,
        keep_result=3600 if RESULTS else 0,
    )
    worker.run()
