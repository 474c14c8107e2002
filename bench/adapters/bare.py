"""No task system: a stream, a consumer group and a task of asyncio per entry,
with redis-py. One read and one pipelined acknowledgement for up to 100
entries (10 at concurrency 10). It keeps no state, survives no failure and
resolves nothing, so it shows what this machine, Redis and asyncio allow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from bench.adapters.marks import shared_marks
from bench.adapters.serving import CONCURRENCY, URL, Producer

STREAM, GROUP = "bare", "workers"
BATCH = min(CONCURRENCY, 100)
marks = shared_marks()


def connect() -> Any:
    return Redis.from_url(URL)  # pyright: ignore[reportUnknownMemberType], untyped in redis-py


class BareProducer(Producer):
    async def open(self) -> None:
        self.redis = connect()

    async def close(self) -> None:
        await self.redis.aclose()

    async def enqueue(self, number: int) -> None:
        await self.redis.xadd(STREAM, {"number": number})

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await self._send([{"number": number} for number in numbers])

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        await self._send([{"number": number, "sleep": seconds} for number in numbers])

    async def _send(self, entries: list[dict[str, float]]) -> None:
        async with self.redis.pipeline(transaction=False) as pipeline:
            for entry in entries:
                pipeline.xadd(STREAM, entry)
            await pipeline.execute()


async def run(entry: Mapping[bytes, bytes]) -> None:
    number = int(entry[b"number"])
    if b"sleep" in entry:
        marks.begin(number)
        await asyncio.sleep(float(entry[b"sleep"]))
        marks.end(number)
    else:
        marks.mark(number)


async def consume() -> None:
    redis = connect()
    with contextlib.suppress(ResponseError):
        await redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    while True:
        read = await redis.xreadgroup(GROUP, "worker", {STREAM: ">"}, count=BATCH, block=1000)
        for _, entries in read or ():
            await asyncio.gather(*[asyncio.create_task(run(entry)) for _, entry in entries])
            async with redis.pipeline(transaction=False) as pipeline:
                ids = [entry_id for entry_id, _ in entries]
                pipeline.xack(STREAM, GROUP, *ids)
                pipeline.xdel(STREAM, *ids)
                await pipeline.execute()


produce = BareProducer


def work() -> None:
    asyncio.run(consume())
