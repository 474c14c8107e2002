"""How fast one worker drains no-op tasks: `python -m bench.drain [--tasks 20000] [--concurrency 10 100] [--url …]`."""

from __future__ import annotations

import argparse
import asyncio
import time

from docket import Docket, Worker

ran = 0


async def noop(number: int) -> None:
    global ran
    ran += 1


async def drain(url: str, tasks: int, concurrency: int) -> None:
    global ran
    ran = 0
    async with Docket("bench", url) as docket:
        docket.register(noop)
        began = time.perf_counter()
        await docket.add_many(docket.call(noop)(number) for number in range(tasks))
        enqueued = time.perf_counter() - began
        async with docket.redis() as redis:
            commands = (await redis.info("stats"))["total_commands_processed"]
        async with Worker(docket, concurrency=concurrency) as worker:
            began, cpu = time.perf_counter(), time.process_time()
            await worker.run_until_finished()
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
        async with docket.redis() as redis:
            commands = (await redis.info("stats"))["total_commands_processed"] - commands
        assert ran == tasks, f"{ran} runs of {tasks} tasks"
    print(
        f"concurrency {concurrency:>5}: enqueue {tasks / enqueued:>7,.0f}/s  drain {tasks / took:>7,.0f}/s  "
        f"{cpu / tasks * 1000:.3f} CPU s per 1,000  {commands / tasks:.1f} commands per task"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="memory://bench")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[10, 100, 1000])
    options = parser.parse_args()
    for concurrency in options.concurrency:
        asyncio.run(drain(options.url, options.tasks, concurrency))


if __name__ == "__main__":
    main()
