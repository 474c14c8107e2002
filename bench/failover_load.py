"""A producer and worker processes under load, for `bench.failovers`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Self

from docket import Docket, NotDurable
from docket.errors import ServerUnreachable

from .failover_tasks import FOLDER, note

NAME = "failovers"
# Most adds that wait for their answer at a time.
MOST_OPEN = 100
CONCURRENCY = 4
# Finished records migrate with their slot. They outlast the repeats of an add.
EXECUTION_TTL = timedelta(seconds=20)
PATIENCE = 120.0


@dataclass
class Adds:
    """What became of the calls of the producer, by their number."""

    acknowledged: dict[int, float] = field(default_factory=dict[int, float])
    sent_at: dict[int, float] = field(default_factory=dict[int, float])
    unconfirmed: int = 0
    refused: int = 0
    lost_answers: int = 0


class WorkerProcess:
    """`docket worker` in a process of its own."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self.name = name
        self.log: IO[bytes] = (folder / f"{name}.log").open("wb")
        words = ["worker", "--docket", NAME, "--url", url, "--tasks", "bench.failover_tasks:tasks", "--name", name]
        words += ["--concurrency", str(CONCURRENCY), "--logging-format", "plain", "--logging-level", "WARNING"]
        words += ["--execution-ttl", f"{EXECUTION_TTL.total_seconds():g}s"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "docket", *words],
            env={**os.environ, FOLDER: str(folder), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        self._starts = folder / f"{self.process.pid}.starts"

    @property
    def exit_code(self) -> int | None:
        return self.process.poll()

    def starts(self) -> list[tuple[float, int]]:
        """The time and the number of every task that it has started."""
        if not self._starts.exists():
            return []
        lines = self._starts.read_bytes().split(b"\n")[:-1]
        return [(float(line.split()[0]), int(line.split()[1])) for line in lines]

    def stop(self) -> int:
        """Its exit code after a SIGTERM."""
        if self.exit_code is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.log.close()


class Load:
    """Adds tasks at a steady rate, each confirmed by a replica, while worker processes run them. An
    async context manager."""

    def __init__(self, url: str, *, workers: int, rate: float) -> None:
        self._url = url
        self._count = workers
        self._pause = 1 / rate
        self._stack = AsyncExitStack()
        self._docket = Docket(NAME, url, durability="replica", execution_ttl=EXECUTION_TTL)
        self._open: set[asyncio.Task[None]] = set()
        self._number = 0
        self.adds: Adds = Adds()
        self.workers: list[WorkerProcess] = []

    async def __aenter__(self) -> Self:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="failovers-")))
        await self._stack.enter_async_context(self._docket)
        self._docket.register(note)
        self.workers = [WorkerProcess(self._url, folder, f"worker-{n}") for n in range(self._count)]
        self._stack.callback(self._end_workers)
        self._producing = asyncio.create_task(self._produce())
        self._stack.push_async_callback(self.stop)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def stop(self) -> None:
        """Ends the producer. The workers go on."""
        self._producing.cancel()
        await asyncio.wait([self._producing])
        if self._open:
            await asyncio.wait(self._open)

    async def all_work(self, since: float) -> list[float]:
        """Returns when each worker has started a task that was sent after that moment: the times of
        these starts."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = [self._first_start(worker, since) for worker in self.workers]
            times = [at for at in found if at is not None]
            if len(times) == len(self.workers):
                return times
            self.check_workers()
            assert time.monotonic() < deadline, f"no new task in {PATIENCE:g} s: {found}"
            await asyncio.sleep(0.02)

    async def lost(self) -> list[int]:
        """The acknowledged calls that have not run, after the workers had time for them."""
        deadline = time.monotonic() + PATIENCE
        while (missing := set(self.adds.acknowledged) - set(self.starts())) and time.monotonic() < deadline:
            self.check_workers()
            await asyncio.sleep(0.1)
        return sorted(missing)

    def starts(self) -> Counter[int]:
        return Counter(number for worker in self.workers for _, number in worker.starts())

    def exited(self) -> list[str]:
        return [f"{worker.name} ({worker.exit_code})" for worker in self.workers if worker.exit_code is not None]

    def check_workers(self) -> None:
        assert not self.exited(), f"a worker has ended: {self.exited()}"

    def _first_start(self, worker: WorkerProcess, since: float) -> float | None:
        return next((at for at, number in worker.starts() if self.adds.sent_at.get(number, 0.0) >= since), None)

    async def _produce(self) -> None:
        while True:
            if len(self._open) < MOST_OPEN:
                self._number += 1
                adding = asyncio.create_task(self._add(self._number))
                self._open.add(adding)
                adding.add_done_callback(self._open.discard)
            await asyncio.sleep(self._pause)

    async def _add(self, number: int) -> None:
        adds = self.adds
        adds.sent_at[number] = time.monotonic()
        try:
            await self._docket.add(note)(number)
        except NotDurable:
            adds.unconfirmed += 1
        except ServerUnreachable as error:
            adds.lost_answers += error.maybe_stored
            adds.refused += not error.maybe_stored
        else:
            adds.acknowledged[number] = time.monotonic()

    def _end_workers(self) -> None:
        for worker in self.workers:
            worker.stop()
