"""What one plain task costs:
`python -m bench.drain [--tasks 20000] [--concurrency 10 100] [--against TREE --pairs 10]`.

Prints rates, CPU of worker process and server, and commands, per task from enqueue to end. With
`--against`, another checkout of docket is measured in turn with this one, each time in a process of
its own on a server of its own, and the medians are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from docket import Docket, Worker

from .server import running_server

HERE = Path(__file__).resolve().parent.parent

ran = 0


async def noop(number: int) -> None:
    global ran
    ran += 1


@dataclass
class Cost:
    """One drain: tasks per second, CPU microseconds and commands per task."""

    enqueue_rate: float
    drain_rate: float
    worker_us: float
    server_us: float
    commands: float

    @property
    def total_us(self) -> float:
        return self.worker_us + self.server_us

    def __str__(self) -> str:
        return (
            f"enqueue {self.enqueue_rate:>7,.0f}/s  drain {self.drain_rate:>7,.0f}/s  CPU µs per task: "
            f"worker {self.worker_us:.2f} + server {self.server_us:.2f} = {self.total_us:.2f}  "
            f"commands per task {self.commands:.2f}"
        )


async def drain(url: str, tasks: int, concurrency: int) -> tuple[float, float, float]:
    """Enqueues, then drains: seconds of both, and CPU seconds of this process."""
    global ran
    ran = 0
    async with Docket("bench", url) as docket:
        docket.register(noop)
        began, cpu = time.perf_counter(), time.process_time()
        await docket.add_many(docket.call(noop)(number) for number in range(tasks))
        enqueued = time.perf_counter() - began
        async with Worker(docket, concurrency=concurrency) as worker:
            began = time.perf_counter()
            await worker.run_until_finished()
            took = time.perf_counter() - began
        cpu = time.process_time() - cpu
        assert ran == tasks, f"{ran} runs of {tasks} tasks"
    return enqueued, took, cpu


def measure(tasks: int, concurrency: int) -> Cost:
    """One drain on a server of its own."""
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder)) as server:
        before = server.read()
        enqueued, took, cpu = asyncio.run(drain(server.url, tasks, concurrency))
        spent = server.read().since(before)
    million = 1e6 / tasks
    return Cost(tasks / enqueued, tasks / took, cpu * million, spent.cpu_seconds * million, spent.commands / tasks)


def measure_tree(tree: Path, tasks: int, concurrency: int) -> Cost:
    """The same with the docket of another checkout, by this benchmark's code."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", "bench.drain", "--json", "--tasks", str(tasks), "--concurrency", str(concurrency)]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=True)
    return Cost(**json.loads(done.stdout))


def compare(tree: Path, tasks: int, concurrency: int, pairs: int) -> None:
    """Old and new in turn; the order within a pair
    alternates, since the second may find a warmer machine."""
    old: list[Cost] = []
    new: list[Cost] = []
    for pair in range(pairs):
        for costs, where in ((old, tree), (new, HERE)) if pair % 2 == 0 else ((new, HERE), (old, tree)):
            costs.append(measure_tree(where, tasks, concurrency))
        print(f"pair {pair + 1:>2}: {old[-1].total_us:.2f} → {new[-1].total_us:.2f} µs", file=sys.stderr)
    print(f"concurrency {concurrency}, median of {pairs} pairs")
    for name in ("worker_us", "server_us", "total_us", "commands", "enqueue_rate", "drain_rate"):
        before = statistics.median(getattr(cost, name) for cost in old)
        after = statistics.median(getattr(cost, name) for cost in new)
        ratios = statistics.median(getattr(n, name) / getattr(o, name) for o, n in zip(old, new, strict=True))
        print(
            f"  {name:<13}{before:>12,.2f} → {after:>12,.2f}   {after / before - 1:+.2%} (median of ratios {ratios - 1:+.2%})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout to compare with")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print one result as JSON")
    options = parser.parse_args()
    for concurrency in options.concurrency:
        if options.against is not None:
            compare(options.against.resolve(), options.tasks, concurrency, options.pairs)
            continue
        cost = measure(options.tasks, concurrency)
        print(json.dumps(asdict(cost)) if options.json else f"concurrency {concurrency:>5}: {cost}")


if __name__ == "__main__":
    main()
