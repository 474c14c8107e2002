"""Rates of plain functions in threads and of functions in children, and the lag of the event loop
beside busy children: `python -m bench.functions`. It starts a server of its own."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil

from bench.function_tasks import blocks, computes, computes_briefly, nothing, nothing_in_child
from docket import Docket, Worker
from docket.worker.children.children import available_processors

# How often the lag of the event loop is sampled.
SAMPLE_SECONDS = 0.01


@asynccontextmanager
async def warm_worker(function: Callable[..., Any], concurrency: int) -> AsyncGenerator[Docket]:
    """A docket with a worker whose threads and children have started."""
    async with (
        Docket("functions", f"memory://{function.__name__}") as docket,
        Worker(docket, concurrency=concurrency) as worker,
    ):
        running = asyncio.create_task(worker.run_forever())
        await run(docket, function, concurrency)
        yield docket
        await docket.clear()
        worker.stop()
        await running


async def run(docket: Docket, function: Callable[..., Any], count: int) -> None:
    executions = await docket.add_many(docket.call(function)() for _ in range(count))
    await asyncio.gather(*(execution.get_result() for execution in executions))


async def rate(function: Callable[..., Any], count: int, concurrency: int) -> tuple[float, float]:
    """Tasks a second, from `add_many` to the last result, and milliseconds of CPU time for each: of
    this process, in which the worker is, and of its children."""
    async with warm_worker(function, concurrency) as docket:
        began, used = time.perf_counter(), cpu_seconds()
        await run(docket, function, count)
        return count / (time.perf_counter() - began), (cpu_seconds() - used) / count * 1000


def cpu_seconds() -> float:
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children())]
    return sum(each.user + each.system for each in times)


async def lag(seconds: float) -> list[float]:
    """Delays of a timer of the event loop, in milliseconds, while every processor has a busy
    child."""
    async with warm_worker(computes, 10) as docket:
        work = [docket.call(computes)() for _ in range(int(seconds * 30 * available_processors()))]
        await docket.add_many(work)
        delays: list[float] = []
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            await asyncio.sleep(SAMPLE_SECONDS)
            delays.append((time.perf_counter() - began - SAMPLE_SECONDS) * 1000)
    return sorted(delays)


async def main(share: float) -> None:
    print(f"processors: {available_processors()}")
    for function, count, concurrency in (
        (nothing, 5000, 10),
        (blocks, 1000, 50),
        (nothing_in_child, 5000, 10),
        (computes_briefly, 2000, 10),
        (computes, 100, 10),
    ):
        found, cpu = await rate(function, max(int(count * share), 1), concurrency)
        print(
            f"{function.__name__:<18} concurrency {concurrency:>3}  {found:>8,.0f} /s  {cpu:>6.2f} ms of CPU time each"
        )
    delays = await lag(10 * share)
    print(f"lag of the event loop: p50 {delays[len(delays) // 2]:.1f} ms, p99 {delays[int(len(delays) * 0.99)]:.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="the share of the usual number of tasks")
    asyncio.run(main(parser.parse_args().share))
