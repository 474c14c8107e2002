"""What viewers of the dashboard cost: `python -m bench.viewers`, and with tasks that run meanwhile
`python -m bench.viewers --busy 200`.

Ten tabs watch the page Now of a docket with waiting tasks. The CPU time of the server with them is
compared with that of the same server without them; with `--busy` also that of a worker, which runs
so many tasks a second. Rounds with and without viewers alternate, so that a slow minute of the
machine does not count for one side.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx
import psutil

from docket import Docket
from docket._aio import cancel_and_wait
from docket.testing.servers import ServerProcess

_ADDRESS = re.compile(r"is at (http://\S+)")
# The producer adds the tasks of this time at once.
_BATCH_SECONDS = 0.1
# So long after a change, its first costs are over: connections, scripts, first pages.
_SETTLE_SECONDS = 2.0


async def work() -> None:
    pass


tasks = [work]


@dataclass
class Usage:
    """The share of a core that some processes use: one number for each of them and each round."""

    pids: Sequence[int]
    without: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])
    watched: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])

    async def measure(self, seconds: float, rounds: list[tuple[float, ...]]) -> None:
        began, before = time.monotonic(), self._cpu_seconds()
        await asyncio.sleep(seconds)
        elapsed = time.monotonic() - began
        rounds.append(tuple((now - then) / elapsed for now, then in zip(self._cpu_seconds(), before, strict=True)))

    def _cpu_seconds(self) -> list[float]:
        found = [psutil.Process(pid).cpu_times() for pid in self.pids]
        return [times.user + times.system for times in found]

    def line(self, name: str, process: int) -> str:
        without, watched = (
            sum(shares[process] for shares in rounds) / len(rounds) for rounds in (self.without, self.watched)
        )
        return f"{name:<11} without viewers {without:7.2%}, with {watched:7.2%}: they cost {watched - without:6.2%} of a core"


@contextmanager
def started(*command: str) -> Generator[tuple[subprocess.Popen[bytes], Path]]:
    """A command of docket as a process of its own, and its log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "docket", *command], stdout=output, stderr=subprocess.STDOUT
            )
        try:
            yield process, log
        finally:
            process.terminate()
            process.wait()


@contextmanager
def dashboard(url: str) -> Generator[str]:
    """`docket web`, and its address."""
    with started("web", "--url", url, "--docket", "shop", "--port", "0") as (process, log):
        while (found := _ADDRESS.search(log.read_text())) is None:
            if process.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.1)
        yield found[1]


async def watch(client: httpx.AsyncClient, address: str, seen: list[int]) -> None:
    """One tab. It opens its stream again when that ends, as a browser does."""
    while True:
        async with client.stream("GET", f"{address}shop/live?page=now") as stream:
            async for line in stream.aiter_lines():
                seen[0] += line.startswith("event:")


@asynccontextmanager
async def watching(address: str, viewers: int, seen: list[int]) -> AsyncGenerator[None]:
    async with httpx.AsyncClient(timeout=None) as client:
        tabs = [asyncio.create_task(watch(client, address, seen)) for _ in range(viewers)]
        try:
            yield
        finally:
            await cancel_and_wait(tabs, "the round is over")


async def produce(docket: Docket, rate: float) -> None:
    """Adds so many tasks a second."""
    number = max(round(rate * _BATCH_SECONDS), 1)
    following = time.monotonic()
    while True:
        await docket.add_many(docket.call(work)() for _ in range(number))
        following += number / rate
        await asyncio.sleep(max(following - time.monotonic(), 0))


@asynccontextmanager
async def producing(docket: Docket, rate: float) -> AsyncGenerator[None]:
    producer = asyncio.create_task(produce(docket, rate)) if rate else None
    try:
        yield
    finally:
        if producer is not None:
            await cancel_and_wait([producer], "the measurement is over")


async def run(waiting: int, viewers: int, seconds: float, rounds: int, rate: float) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess("--save", "", tcp=True))
        pids = [server.pid]
        if rate:
            command = ("worker", "--url", server.url, "--docket", "shop", "--tasks", "bench.viewers:tasks")
            pids.append(stack.enter_context(started(*command))[0].pid)
        seen, usage = [0], Usage(pids)
        async with Docket("shop", server.url) as docket:
            docket.register(work)
            call = docket.call(work, docket.now() + timedelta(days=1))
            for _ in range(0, waiting, 10_000):
                await docket.add_many(call() for _ in range(10_000))
            address = stack.enter_context(dashboard(server.url))
            async with producing(docket, rate):
                for _ in range(rounds):
                    await asyncio.sleep(_SETTLE_SECONDS)
                    await usage.measure(seconds, usage.without)
                    async with watching(address, viewers, seen):
                        await asyncio.sleep(_SETTLE_SECONDS)
                        await usage.measure(seconds, usage.watched)
    busy = f", {rate:.0f} tasks a second run" if rate else ""
    print(
        f"{waiting:,} tasks wait{busy}; {viewers} viewers of Now, {rounds} × {seconds:.0f} s, {seen[0]} events arrived"
    )
    print(usage.line("the server:", 0), "(goal: less than 1 %)")
    if rate:
        print(usage.line("the worker:", 1), "(goal: nothing)")


def main() -> None:
    parser = argparse.ArgumentParser(description="What viewers of the dashboard cost.")
    parser.add_argument("--tasks", type=int, default=100_000, help="tasks that wait for tomorrow")
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20, help="the length of a round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--busy", type=float, default=0, metavar="RATE", help="tasks a second that a worker runs")
    given = parser.parse_args()
    asyncio.run(run(given.tasks, given.viewers, given.seconds, given.rounds, given.busy))


if __name__ == "__main__":
    main()
