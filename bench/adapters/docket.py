"""This package, with defaults: `Docket(name, url)`, `Worker(docket, concurrency=…)`. In bulk:
`add_many`. Every task has a record with its state, kept for 15 minutes. Functions that compute
declare `Process()`: `Worker(docket, cpu_processes=…)`, with 10 slots, the default. With its default
log: `docket worker`, INFO, two lines per task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.adapters.docket_api import DocketProducer, run_command, run_worker
from bench.adapters.marks import shared_marks
from bench.adapters.serving import BLOCK, COMPUTE, CONCURRENCY, DEFAULT_LOG, NOTHING, PROCESSES, URL
from docket import Process

marks = shared_marks()


def plain_mark(number: int, seconds: float) -> None:
    marks.mark(number)


def plain_sleeper(number: int, seconds: float) -> None:
    marks.begin(number)
    time.sleep(seconds)
    marks.end(number)


def burner(number: int, seconds: float, process: Process = Process()) -> None:
    marks.compute(number, seconds)


PLAIN: dict[str, Callable[..., Any]] = {NOTHING: plain_mark, BLOCK: plain_sleeper, COMPUTE: burner}


class PlainProducer(DocketProducer):
    async def open(self) -> None:
        await super().open()
        for function in PLAIN.values():
            self.docket.register(function)

    async def enqueue_plain(self, kind: str, numbers: Sequence[int], seconds: float) -> None:
        await self.docket.add_many([self.docket.call(PLAIN[kind])(number, seconds) for number in numbers])


def produce() -> DocketProducer:
    return PlainProducer(URL)


def work() -> None:
    if DEFAULT_LOG:
        run_command(URL)
    options = {"cpu_processes": CONCURRENCY} if PROCESSES else {"concurrency": CONCURRENCY}
    asyncio.run(run_worker(URL, PLAIN.values(), **options))
