"""The sync docket beside the async one: `python -m bench.sync_adds [--tasks 5000] [--rounds 5]`.

Prints adds one by one, `add_many`, and adds from several at once (asyncio tasks, or threads), per
second. Both run in turn in one process on one server, and the medians are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docket import Docket
from docket.sync import Docket as SyncDocket

from .server import running_server

AT_ONCE = 8
NAMES = ("one by one", "add_many", f"{AT_ONCE} at once")
Rates = tuple[float, float, float]


async def noop(number: int) -> None: ...


async def measure_async(url: str, tasks: int) -> Rates:
    async with Docket("bench-async", url) as docket:
        await docket.add(noop)(0)
        began = time.perf_counter()
        for number in range(tasks):
            await docket.add(noop)(number)
        one_by_one = time.perf_counter() - began
        began = time.perf_counter()
        await docket.add_many(docket.call(noop)(number) for number in range(tasks))
        many = time.perf_counter() - began

        async def adds() -> None:
            for number in range(tasks // AT_ONCE):
                await docket.add(noop)(number)

        began = time.perf_counter()
        await asyncio.gather(*(adds() for _ in range(AT_ONCE)))
        at_once = time.perf_counter() - began
        await docket.clear()
    return tasks / one_by_one, tasks / many, tasks / at_once


def measure_sync(url: str, tasks: int) -> Rates:
    with SyncDocket("bench-sync", url) as docket, ThreadPoolExecutor(AT_ONCE) as pool:
        docket.add(noop)(0)
        began = time.perf_counter()
        for number in range(tasks):
            docket.add(noop)(number)
        one_by_one = time.perf_counter() - began
        began = time.perf_counter()
        docket.add_many(docket.call(noop)(number) for number in range(tasks))
        many = time.perf_counter() - began

        def adds(_: int) -> None:
            for number in range(tasks // AT_ONCE):
                docket.add(noop)(number)

        began = time.perf_counter()
        list(pool.map(adds, range(AT_ONCE)))
        at_once = time.perf_counter() - began
        docket.clear()
    return tasks / one_by_one, tasks / many, tasks / at_once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    measures: tuple[Callable[[str], Rates], Callable[[str], Rates]] = (
        lambda url: asyncio.run(measure_async(url, options.tasks)),
        lambda url: measure_sync(url, options.tasks),
    )
    found: tuple[list[Rates], list[Rates]] = ([], [])
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder)) as server:
        for number in range(options.rounds):
            # The order alternates, since the second may find a warmer machine.
            for at in (0, 1) if number % 2 == 0 else (1, 0):
                found[at].append(measures[at](server.url))
    print(f"{'adds per second':<16}{'async':>10}{'sync':>10}{'sync/async':>12}   median of {options.rounds} rounds")
    for at, name in enumerate(NAMES):
        rates = [[rates[at] for rates in rounds] for rounds in found]
        ratio = statistics.median(s / a for a, s in zip(*rates, strict=True))
        print(f"{name:<16}{statistics.median(rates[0]):>10,.0f}{statistics.median(rates[1]):>10,.0f}{ratio:>12.2f}")


if __name__ == "__main__":
    main()
