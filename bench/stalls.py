"""How long large values hold up another client:
`python -m bench.stalls [--seconds 4] [--rounds 1]`.

A process of its own sends one PING after another while this one works with
large arguments and results. Before each piece of work it measures the idle
server for as long as `--seconds`. Server and pinger run at a higher priority
where that is allowed; without, the figures show the machine's load as well.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docket import Docket, Worker

from .server import BenchServer, running_server

MB = 1_000_000
PRIORITY = -10
PAUSE_SECONDS = 0.0005
MINUTES = timedelta(minutes=5)


async def take(value: bytes) -> None: ...


async def echo(value: bytes) -> bytes:
    return value


@dataclass(frozen=True)
class Delays:
    """The answers to PING in a span of time, in milliseconds."""

    values: list[float]

    @property
    def worst(self) -> float:
        return max(self.values, default=0.0)

    @property
    def p999(self) -> float:
        ordered = sorted(self.values)
        return ordered[int(len(ordered) * 0.999)] if ordered else 0.0

    def __str__(self) -> str:
        return f"p99.9 {self.p999:7.2f} ms  worst {self.worst:8.2f} ms  of {len(self.values):>6,} PINGs"


def rise(pid: int) -> bool:
    """Gives a process a higher priority; False where that is not allowed."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, PRIORITY)
    except OSError:
        return False
    return True


def ping(port: int, pipe: Connection) -> None:
    """Sends PINGs until it is told to stop, then the times and delays of all of them."""
    rise(0)
    found: list[tuple[float, float]] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pipe.send("ready")
        while not pipe.poll():
            began = time.monotonic()
            connection.sendall(b"PING\r\n")
            connection.recv(64)
            found.append((began, (time.monotonic() - began) * 1000))
            time.sleep(PAUSE_SECONDS)
    pipe.send(found)


class Pinger:
    """The other client."""

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=ping, args=(port, end), daemon=True)
        self._process.start()
        self._pipe.recv()

    def stop(self) -> list[tuple[float, float]]:
        self._pipe.send("stop")
        found = self._pipe.recv()
        self._process.join()
        return found


Work = Callable[[Docket], Awaitable[str]]


async def fall_due(docket: Docket) -> str:
    """The tasks are stored while the control is measured; only their falling due counts."""
    async with Worker(docket, concurrency=50) as worker:
        await worker.run_until_finished()
    return "all ran"


async def store_due(docket: Docket) -> None:
    when = docket.now() + timedelta(seconds=8)
    await docket.add_many([docket.call(take, when=when)(b"a" * MB) for _ in range(300)], chunk_size=20)
    await asyncio.sleep(max((when - docket.now()).total_seconds() - 0.2, 0))


async def add_fifty(docket: Docket) -> str:
    done = await asyncio.gather(*(docket.add(take)(b"a" * 4 * MB) for _ in range(50)), return_exceptions=True)
    return f"{sum(not isinstance(found, BaseException) for found in done)} of 50 scheduled"


async def add_with_neighbour(docket: Docket) -> str:
    fat = [asyncio.create_task(docket.add(take)(b"a" * 200_000)) for _ in range(30)]
    began = time.monotonic()
    neighbour = asyncio.create_task(docket.add(take)(b""))
    neighbour.add_done_callback(lambda _: took.append(time.monotonic() - began))
    took: list[float] = []
    fat += [asyncio.create_task(docket.add(take)(b"a" * 200_000)) for _ in range(30)]
    done = await asyncio.gather(*fat, neighbour, return_exceptions=True)
    scheduled = sum(not isinstance(found, BaseException) for found in done)
    small = f"failed: {done[-1]}" if isinstance(done[-1], BaseException) else f"took {took[0] * 1000:.0f} ms"
    return f"{scheduled} of 61 scheduled; the small one {small}"


async def run_hundred(docket: Docket) -> str:
    executions = [await docket.add(echo)(b"a" * MB) for _ in range(100)]
    async with Worker(docket, concurrency=10) as worker:
        await worker.run_until_finished()
    sizes = [len(await execution.get_result(timeout=MINUTES)) for execution in executions]
    return f"{sizes.count(MB)} of 100 results"


SCENES: dict[str, tuple[Callable[[Docket], Awaitable[None]] | None, Work]] = {
    "300 tasks of 1 MB fall due": (store_due, fall_due),
    "50 adds of 4 MB": (None, add_fifty),
    "60 adds of 200 kB and a small one": (None, add_with_neighbour),
    "100 runs with 1 MB in and out": (None, run_hundred),
}


async def play(server: BenchServer, scene: str, seconds: float) -> tuple[Delays, Delays, str]:
    prepare, work = SCENES[scene]
    port = urlsplit(server.url).port
    assert port is not None
    async with Docket("stalls", server.url) as docket:
        docket.register(take)
        docket.register(echo)
        if prepare is not None:
            await prepare(docket)
        pinger = Pinger(port)
        control = (time.monotonic(), time.monotonic() + seconds)
        if prepare is None:
            await asyncio.sleep(seconds)
        began = time.monotonic()
        outcome = await work(docket)
        ended = time.monotonic()
        if prepare is not None:
            # What was prepared does not wait: here the idle server comes afterwards.
            control = (ended + 0.5, ended + 0.5 + seconds)
            await asyncio.sleep(seconds + 0.5)
        found = pinger.stop()

    def within(start: float, end: float) -> Delays:
        return Delays([delay for at, delay in found if start <= at < end])

    return within(*control), within(began, ended), outcome


@contextlib.contextmanager
def quick_server() -> Iterator[tuple[BenchServer, bool]]:
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder)) as server:
        redis: Any = server._redis  # pyright: ignore[reportPrivateUsage]
        yield server, rise(redis.info("server")["process_id"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long the idle server is measured")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", help="the scenes whose name contains this")
    options = parser.parse_args()
    for scene in SCENES:
        if options.only and options.only not in scene:
            continue
        idle: list[float] = []
        busy: list[float] = []
        outcome = ""
        notes: set[str] = set()
        for _ in range(options.rounds):
            with quick_server() as (server, risen):
                notes |= set() if risen else {" (at the usual priority)"}
                control, under_load, outcome = asyncio.run(play(server, scene, options.seconds))
                idle += control.values
                busy += under_load.values
        before, after = Delays(idle), Delays(busy)
        print(f"{scene}: {outcome}{''.join(notes)}")
        print(
            f"  idle   {before}\n  busy   {after}\n  above idle: p99.9 {after.p999 - before.p999:+.2f} ms", flush=True
        )


if __name__ == "__main__":
    main()
