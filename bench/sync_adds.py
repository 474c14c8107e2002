"""The sync docket beside the async one: `python -m bench.sync_adds [--tasks 5000] [--rounds 5]`.

Prints adds one by one, `add_many`, and adds from several at once (asyncio tasks, or threads), per
second, and the CPU time of this process for each. Both run in turn in one process on one server,
and the medians are compared. On a busy machine the CPU times are the better measure.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from docket import Docket
from docket.sync import Docket as SyncDocket

from .server import running_server

AT_ONCE = 8
NAMES = ("one by one", "add_many", f"{AT_ONCE} at once")


@dataclass
class Cost:
    """Adds a second, and microseconds of CPU time per add."""

    rate: float
    cpu_us: float


class Clock:
    """Measures one block of adds."""

    def __init__(self, tasks: int, costs: list[Cost]) -> None:
        self._tasks = tasks
        self._costs = costs

    def __enter__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def __exit__(self, *error: object) -> None:
        seconds, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        self._costs.append(Cost(self._tasks / seconds, cpu / self._tasks * 1e6))


async def noop(number: int) -> None: ...


async def measure_async(url: str, tasks: int) -> list[Cost]:
    costs: list[Cost] = []
    async with Docket("bench-async", url) as docket:
        await docket.add(noop)(0)
        with Clock(tasks, costs):
            for number in range(tasks):
                await docket.add(noop)(number)
        with Clock(tasks, costs):
            await docket.add_many(docket.call(noop)(number) for number in range(tasks))

        async def adds() -> None:
            for number in range(tasks // AT_ONCE):
                await docket.add(noop)(number)

        with Clock(tasks, costs):
            await asyncio.gather(*(adds() for _ in range(AT_ONCE)))
        await docket.clear()
    return costs


def measure_sync(url: str, tasks: int) -> list[Cost]:
    costs: list[Cost] = []
    with SyncDocket("bench-sync", url) as docket, ThreadPoolExecutor(AT_ONCE) as pool:
        docket.add(noop)(0)
        with Clock(tasks, costs):
            for number in range(tasks):
                docket.add(noop)(number)
        with Clock(tasks, costs):
            docket.add_many(docket.call(noop)(number) for number in range(tasks))

        def adds(_: int) -> None:
            for number in range(tasks // AT_ONCE):
                docket.add(noop)(number)

        with Clock(tasks, costs):
            list(pool.map(adds, range(AT_ONCE)))
        docket.clear()
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    measures: tuple[Callable[[str], list[Cost]], Callable[[str], list[Cost]]] = (
        lambda url: asyncio.run(measure_async(url, options.tasks)),
        lambda url: measure_sync(url, options.tasks),
    )
    found: tuple[list[list[Cost]], list[list[Cost]]] = ([], [])
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder)) as server:
        for number in range(options.rounds):
            # The order alternates, since the second may find a warmer machine.
            for at in (0, 1) if number % 2 == 0 else (1, 0):
                found[at].append(measures[at](server.url))
    print(f"median of {options.rounds} rounds; {'adds per second':>17}{'':>13}{'CPU µs per add':>24}")
    print(f"{'':<16}" + f"{'async':>10}{'sync':>10}{'sync/async':>12}" * 2)
    for at, name in enumerate(NAMES):
        costs = [[costs[at] for costs in rounds] for rounds in found]
        rates = _compared(*[[cost.rate for cost in system] for system in costs], digits=0)
        print(f"{name:<16}{rates}{_compared(*[[cost.cpu_us for cost in system] for system in costs], digits=1)}")


def _compared(others: list[float], ours: list[float], digits: int) -> str:
    """The medians of the async and of the sync docket, and the median of their ratios."""
    ratio = statistics.median(sync / other for other, sync in zip(others, ours, strict=True))
    return f"{statistics.median(others):>10,.{digits}f}{statistics.median(ours):>10,.{digits}f}{ratio:>12.2f}"


if __name__ == "__main__":
    main()
