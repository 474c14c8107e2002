"""A process with many workers of one docket: `python -m bench.fleet_host URL NAME WORKERS FOLDER`.

They are whole workers, each with its lease, its renewal thread and its blocking read. They share
the docket's connections, so that a machine with two cores can hold a thousand. Twice a second the
process writes down how often each script was called.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from docket import Docket, Worker
from docket.storage.server import Server

from .script_times import timed_scripts

DOCKET = "fleet"
SLOTS = 20
counts: Counter[str] = Counter()


async def hold(number: int) -> None:
    """Runs for longer than any measurement."""
    await asyncio.sleep(3600)


async def tick(number: int) -> None:
    """Does nothing at its time."""


def count_scripts() -> None:
    """Whatever the workers ask of the server from now on is counted."""
    run, run_blocking = Server.run, Server.run_blocking

    async def noted(server: Server, script: str, *args: Any, **options: Any) -> Any:
        counts[script] += 1
        return await run(server, script, *args, **options)

    def noted_blocking(server: Server, client: Any, script: str, *args: Any, **options: Any) -> Any:
        counts[script] += 1
        return run_blocking(server, client, script, *args, **options)

    Server.run, Server.run_blocking = noted, noted_blocking


async def report(path: Path) -> None:
    while True:
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(counts))
        scratch.replace(path)
        await asyncio.sleep(0.5)


async def host(url: str, name: str, workers: int, folder: Path) -> None:
    count_scripts()
    async with AsyncExitStack() as stack:
        stack.enter_context(timed_scripts())
        docket = await stack.enter_async_context(Docket(DOCKET, url))
        docket.register(hold)
        docket.register(tick)
        staff = [
            await stack.enter_async_context(Worker(docket, name=f"{name}-{n}", concurrency=SLOTS))
            for n in range(workers)
        ]
        await asyncio.gather(report(folder / f"{name}.json"), *(worker.run_forever() for worker in staff))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(host(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
