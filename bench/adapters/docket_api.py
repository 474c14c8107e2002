"""The adapter for the public API that `docket` and `pydocket` share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from bench.adapters.marks import shared_marks
from bench.adapters.serving import CONCURRENCY, Producer, run_program
from docket import Docket, Worker

NAME = "bench"
marks = shared_marks()


async def mark(number: int) -> None:
    marks.mark(number)


async def echo(number: int) -> int:
    marks.mark(number)
    return number


async def sleeper(number: int, seconds: float) -> None:
    marks.begin(number)
    await asyncio.sleep(seconds)
    marks.end(number)


tasks = [mark, echo, sleeper]


class DocketProducer(Producer):
    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self) -> None:
        self.docket = Docket(NAME, self.url)
        await self.docket.__aenter__()
        for task in tasks:
            self.docket.register(task)

    async def close(self) -> None:
        await self.docket.__aexit__(None, None, None)

    async def enqueue(self, number: int) -> None:
        await self.docket.add(mark)(number)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await self.docket.add_many([self.docket.call(mark)(number) for number in numbers])

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        await self.docket.add_many([self.docket.call(sleeper)(number, seconds) for number in numbers])

    async def enqueue_at(self, number: int, when: datetime) -> None:
        await self.docket.add(mark, when=when)(number)

    async def enqueue_many_at(self, numbers: Sequence[int], when: datetime) -> None:
        await self.docket.add_many([self.docket.call(mark, when=when)(number) for number in numbers])

    async def round_trip(self, number: int) -> int:
        execution = await self.docket.add(echo)(number)
        return await execution.get_result(timeout=timedelta(seconds=10))


def run_command(url: str) -> None:
    """The worker as its command starts it, with its default log."""
    run_program(
        *("-m", "docket", "worker", "--docket", NAME, "--url", url, "--concurrency", str(CONCURRENCY)),
        *("--tasks", "bench.adapters.docket_api:tasks"),
    )


async def run_worker(url: str, others: Iterable[Callable[..., Any]] = (), **options: Any) -> None:
    async with Docket(NAME, url) as docket:
        for task in (*tasks, *others):
            docket.register(task)
        async with Worker(docket, **(options or {"concurrency": CONCURRENCY})) as worker:
            await worker.run_forever()
