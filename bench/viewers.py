"""What viewers of the dashboard cost the server: `python -m bench.viewers`.

Ten tabs watch the page Now of a docket with waiting tasks. The CPU time of the server with them is
compared with that of the same server without them.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import psutil

from docket import Docket
from docket.testing.servers import ServerProcess

_ADDRESS = re.compile(r"is at (http://\S+)")


async def work() -> None:
    pass


@contextmanager
def dashboard(url: str) -> Iterator[str]:
    """`docket web` as a process of its own, and its address."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "docket", "web", "--url", url, "--docket", "shop", "--port", "0"]
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            while (found := _ADDRESS.search(log.read_text())) is None:
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
            yield found[1]
        finally:
            process.terminate()
            process.wait()


async def watch(client: httpx.AsyncClient, address: str, seen: list[int]) -> None:
    """One tab. It opens its stream again when that ends, as a browser does."""
    while True:
        async with client.stream("GET", f"{address}shop/live?page=now") as stream:
            async for line in stream.aiter_lines():
                seen[0] += line.startswith("event:")


def server_seconds(server: ServerProcess) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return times.user + times.system


async def measure(server: ServerProcess, seconds: float) -> float:
    """The share of a core that the server uses."""
    before = server_seconds(server)
    await asyncio.sleep(seconds)
    return (server_seconds(server) - before) / seconds


async def run(tasks: int, viewers: int, seconds: float) -> None:
    with ServerProcess("--save", "", tcp=True) as server:
        async with Docket("shop", server.url) as docket:
            docket.register(work)
            call = docket.call(work, docket.now() + timedelta(days=1))
            for _ in range(0, tasks, 10_000):
                await docket.add_many(call() for _ in range(10_000))
        with dashboard(server.url) as address:
            idle = await measure(server, seconds)
            seen = [0]
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(httpx.AsyncClient(timeout=None))
                tabs = [asyncio.create_task(watch(client, address, seen)) for _ in range(viewers)]
                await asyncio.sleep(2)
                watched = await measure(server, seconds)
                for tab in tabs:
                    tab.cancel()
                await asyncio.gather(*tabs, return_exceptions=True)
    print(f"{tasks:,} tasks wait, {viewers} viewers of Now for {seconds:.0f} s, {seen[0]} events arrived")
    print(f"the server without viewers: {idle:.2%} of a core")
    print(f"the server with viewers:    {watched:.2%} of a core")
    print(f"the viewers cost:           {watched - idle:.2%} of a core (goal: less than 1 %)")


def main() -> None:
    parser = argparse.ArgumentParser(description="What viewers of the dashboard cost the server.")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    asyncio.run(run(given.tasks, given.viewers, given.seconds))


if __name__ == "__main__":
    main()
