"""What tasks take on the server, and a worker on its machine: `python -m bench.memory`.

A task takes no less if it waits for its time, for a limit or in a pause. Arguments count with their
pickled size; here they are a short text and a number. Keys are generated (36 characters), as for
every `add` without a key.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import sys
from datetime import UTC, datetime, timedelta

from docket import Docket, Worker

TASKS = 20_000


async def plain(name: str, number: int) -> None: ...


async def with_result(name: str, number: int) -> dict[str, int]:
    return {name: number}


async def failing(name: str, number: int) -> None:
    raise ValueError(f"{name} {number} does not exist")


async def used(docket: Docket) -> int:
    async with docket.redis() as redis:
        return int((await redis.info("memory"))["used_memory"])


async def measure(url: str, tasks: int) -> list[tuple[str, float]]:
    later = datetime.now(UTC) + timedelta(days=1)
    rows: list[tuple[str, float]] = []
    for title, function, when, run in (
        ("queued", plain, None, False),
        ("scheduled", plain, later, False),
        ("finished, without a result", plain, None, True),
        ("finished, with a small result", with_result, None, True),
        ("failed: its record and its dead letter", failing, None, True),
    ):
        async with Docket(f"memory-{title}", url) as docket, Worker(docket, concurrency=100) as worker:
            docket.register(function)
            await docket.add(plain, key="first")("first", 0)
            await worker.run_until_finished()
            before = await used(docket)
            await docket.add_many([docket.call(function, when)("name", number) for number in range(tasks)])
            if run:
                await worker.run_until_finished()
            rows.append((title, (await used(docket) - before) / tasks))
            async with docket.redis() as redis:
                await redis.flushdb()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--url", default="memory://memory", help="a server of its own: its database is flushed")
    parser.add_argument("--tasks", type=int, default=TASKS)
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    rows = asyncio.run(measure(options.url, options.tasks))
    print("| a task that is | bytes on the server |\n|---|---:|")
    for title, size in rows:
        print(f"| {title} | {size:.0f} |")
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    print(f"\nThis process, producer and worker with {options.tasks:,} executions: {peak:.0f} MiB at most")


if __name__ == "__main__":
    main()
