"""Measures docket's speed on a server, from this process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from docket._aio import cancel_and_wait
from docket.docket import Docket
from docket.worker import Worker

# Each measurement ends after about this long, with the figures it has: a slow server
# must not make the benchmark endless.
PATIENCE_SECONDS = 10.0
ROUND_TRIPS, ONE_BY_ONE, LATENCIES = 200, 500, 200
CHUNK = 1000


@dataclass(frozen=True)
class Rate:
    """A count and the seconds it took."""

    count: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.count / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class Times:
    """Repeated measurements of one duration, in seconds."""

    values: Sequence[float]

    def percentile(self, share: float) -> float:
        ordered = sorted(self.values)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class Bench:
    """A benchmark on one docket. Its tasks only record that they ran."""

    def __init__(self, docket: Docket) -> None:
        self._docket = docket
        self._ran = 0
        self._awaited = 0
        self._all_ran = asyncio.Event()
        self._started = 0.0
        docket.register(self._record_run, names=["bench"])

    async def _record_run(self, number: int) -> int:
        self._started = time.perf_counter()
        self._ran += 1
        if self._ran >= self._awaited:
            self._all_ran.set()
        return number

    async def round_trips(self) -> Times:
        """The times of single commands to the server."""
        values: list[float] = []
        end = time.monotonic() + PATIENCE_SECONDS
        while len(values) < ROUND_TRIPS and time.monotonic() < end:
            began = time.perf_counter()
            await self._docket.ledger.ping()
            values.append(time.perf_counter() - began)
        return Times(values)

    async def add_one_by_one(self) -> Rate:
        began, count = time.perf_counter(), 0
        while count < ONE_BY_ONE and time.perf_counter() - began < PATIENCE_SECONDS:
            await self._docket.add("bench")(count)
            count += 1
        return Rate(count, time.perf_counter() - began)

    async def add_many(self, tasks: int) -> Rate:
        call = self._docket.call("bench")
        began, count = time.perf_counter(), 0
        while count < tasks and time.perf_counter() - began < PATIENCE_SECONDS:
            chunk = min(CHUNK, tasks - count)
            executions = await self._docket.add_many(call(number) for number in range(chunk))
            for execution in executions:
                if execution.schedule_exception is not None:
                    raise execution.schedule_exception
            count += chunk
        return Rate(count, time.perf_counter() - began)

    async def drain(self, waiting: int, concurrency: int) -> Rate:
        """The rate at which one worker runs all waiting tasks."""
        self._ran, self._awaited = 0, waiting
        self._all_ran.clear()
        began = time.perf_counter()
        async with self._working(concurrency):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_ran.wait(), PATIENCE_SECONDS * 2)
            return Rate(self._ran, time.perf_counter() - began)

    async def latencies(self) -> tuple[Times, Times]:
        """The times from `add` to the start of the task, and
        to the result in the caller, with an idle worker."""
        to_body: list[float] = []
        to_result: list[float] = []
        end = time.monotonic() + PATIENCE_SECONDS
        async with self._working(concurrency=10):
            await (await self._docket.add("bench")(0)).get_result(timeout=timedelta(seconds=PATIENCE_SECONDS))
            while len(to_body) < LATENCIES and time.monotonic() < end:
                began = time.perf_counter()
                execution = await self._docket.add("bench")(1)
                await execution.get_result(timeout=timedelta(seconds=PATIENCE_SECONDS))
                to_result.append(time.perf_counter() - began)
                to_body.append(self._started - began)
        return Times(to_body), Times(to_result)

    @asynccontextmanager
    async def _working(self, concurrency: int) -> AsyncGenerator[None]:
        async with Worker(self._docket, name="bench", concurrency=concurrency) as worker:
            running = asyncio.create_task(worker.run_forever(), name=f"{self._docket.name} - bench")
            try:
                yield
            finally:
                await cancel_and_wait([running], "docket: the benchmark is over")
