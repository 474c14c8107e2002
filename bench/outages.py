"""Measures how soon workers run tasks again after a restart of their server:
`python -m bench.outages [--restarts 20] [--workers 5]`.

Each worker has its own docket on one server. The server is killed and, after a pause, restarted
with its data. The time counts from the first answer of the server until each worker has run a task
that was added after the restart.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import redis
import redis.asyncio as aioredis

from docket import Docket, Worker
from docket.errors import ServerUnreachable
from docket.storage.embedded import find_server

# The length of an outage.
SHORTEST, LONGEST = 1.0, 12.0
PATIENCE = 60.0


class Restarted:
    """A server that is killed and started again, with its data."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [str(find_server()), "--port", str(self.port), "--dir", str(self._folder), "--save", ""]
        self._process = subprocess.Popen(
            [*words, "--appendonly", "yes"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    async def answers(self) -> float:
        """The moment at which it answers."""
        library: Any = aioredis
        async with library.Redis(port=self.port) as client:
            while True:
                try:
                    await client.ping()
                    return time.monotonic()
                except redis.RedisError:
                    await asyncio.sleep(0.002)


class Probe:
    """One worker, and a task that tells when it ran."""

    def __init__(self, docket: Docket, producer: Docket) -> None:
        self._producer = producer
        self._ran: dict[str, asyncio.Future[float]] = {}
        docket.register(self.tell)
        producer.register(self.tell)

    async def tell(self, name: str) -> None:
        if name in self._ran and not self._ran[name].done():
            self._ran[name].set_result(time.monotonic())

    async def runs_at(self) -> float:
        name = secrets.token_hex(8)
        self._ran[name] = asyncio.get_running_loop().create_future()
        while True:
            try:
                await self._producer.add(self.tell)(name)
                break
            except ServerUnreachable:
                await asyncio.sleep(0.005)
        async with asyncio.timeout(PATIENCE):
            return await self._ran[name]


async def measure(restarts: int, workers: int) -> list[float]:
    """Seconds for each worker and each restart."""
    folder = Path(tempfile.mkdtemp(prefix="outages-"))
    server = Restarted(folder)
    server.start()
    seconds: list[float] = []
    try:
        async with AsyncExitStack() as stack:
            await server.answers()
            probes = [await _probe(stack, server.url, number) for number in range(workers)]
            for number in range(restarts):
                await asyncio.gather(*(probe.runs_at() for probe in probes))
                server.kill()
                await asyncio.sleep(random.uniform(SHORTEST, LONGEST))
                server.start()
                up = await server.answers()
                found = [at - up for at in await asyncio.gather(*(probe.runs_at() for probe in probes))]
                seconds += found
                print(f"restart {number + 1:>3}: " + "  ".join(f"{each:5.2f}" for each in found), flush=True)
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return seconds


async def _probe(stack: AsyncExitStack, url: str, number: int) -> Probe:
    docket = await stack.enter_async_context(Docket(f"outages-{number}", url))
    producer = await stack.enter_async_context(Docket(f"outages-{number}", url))
    worker = await stack.enter_async_context(Worker(docket))
    probe = Probe(docket, producer)
    running = asyncio.create_task(worker.run_forever())

    async def stop() -> None:
        worker.stop()
        await running

    stack.push_async_callback(stop)
    return probe


def percentile(seconds: Sequence[float], share: float) -> float:
    ordered = sorted(seconds)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--workers", type=int, default=5)
    options = parser.parse_args()
    logging.getLogger("docket").setLevel(logging.ERROR)
    seconds = asyncio.run(measure(options.restarts, options.workers))
    print(
        f"{len(seconds)} measurements: half within {statistics.median(seconds):.2f} s, "
        f"95 of 100 within {percentile(seconds, 0.95):.2f} s, the longest {max(seconds):.2f} s"
    )


if __name__ == "__main__":
    main()
