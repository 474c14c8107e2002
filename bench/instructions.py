"""How many instructions the server executes for one plain task:
`python -m bench.instructions [--against TREE] [--concurrency 100]`.

Times on a shared machine vary by half; instructions do not. The server runs under valgrind
(callgrind), once with fewer and once with more tasks. The difference, divided by the number of
additional tasks, is the cost of a task without the cost of starting and connecting. The last row is
the floor: bare scripts that do nothing but what a plain task needs (bench/floor.py).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docket import Docket, Worker

from .floor import bare_load
from .server import running_server

HERE = Path(__file__).resolve().parent.parent
# In place of a tree.
FLOOR = "floor"
FEWER, MORE = 2_000, 6_000


async def noop(number: int) -> None: ...


async def load(url: str, tasks: int, concurrency: int) -> None:
    """Enqueues, and drains unless the concurrency is 0."""
    async with Docket("bench", url) as docket:
        docket.register(noop)
        await docket.add_many([docket.call(noop)(number) for number in range(tasks)])
        if concurrency:
            async with Worker(docket, concurrency=concurrency) as worker:
                await worker.run_until_finished()


def count(tree: Path | str, tasks: int, concurrency: int) -> int:
    """The instructions of a server under the load of one tree, or of the bare scripts."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "callgrind.out"
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}"]
        with running_server(Path(folder), valgrind) as server:
            if isinstance(tree, str):
                bare_load(server.url, tasks, drains=concurrency > 0)
            else:
                load = [sys.executable, "-m", "bench.instructions", "--load", server.url, str(tasks), str(concurrency)]
                environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
                subprocess.run(load, cwd=HERE, env=environment, check=True, stderr=subprocess.DEVNULL)
        totals = re.search(r"^(?:summary|totals): (\d+)", output.read_text(), re.MULTILINE)
        assert totals is not None, "callgrind wrote no totals"
        return int(totals[1])


def per_task(tree: Path | str, concurrency: int) -> float:
    return (count(tree, MORE, concurrency) - count(tree, FEWER, concurrency)) / (MORE - FEWER)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout to compare with")
    parser.add_argument("--load", nargs=3, metavar=("URL", "TASKS", "CONCURRENCY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load is not None:
        url, tasks, concurrency = options.load
        asyncio.run(load(url, int(tasks), int(concurrency)))
        return
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed (apt-get install valgrind)")
    trees: dict[str, Path | str] = {} if options.against is None else {"before": options.against.resolve()}
    trees |= {"this tree": HERE, FLOOR: FLOOR}
    for name, tree in trees.items():
        enqueue, whole = per_task(tree, 0), per_task(tree, options.concurrency)
        print(
            f"{name:>9}: server instructions per task: enqueue {enqueue:,.0f} + drain {whole - enqueue:,.0f} = {whole:,.0f}"
        )


if __name__ == "__main__":
    main()
