"""What a fleet of workers asks of its server: `python -m bench.fleet [--workers 1 10 100 1000]`.

Starts a server of its own and whole workers, many per process, and measures them idle, with
scheduled tasks, over stalls of the server, and when nine of ten are killed at once. The server runs
at a higher priority where that is allowed. The worst script is by the server's CPU time; what the
clock on the wall says is in the details.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from redis import Redis

from docket import Docket

from .fleet_host import DOCKET, hold, tick
from .script_times import ScriptLog, script_name, timed_scripts
from .server import BenchServer, running_server

ROOT = Path(__file__).resolve().parent.parent
HOSTS = 10
IDLE_SECONDS = 10.0
SCHEDULED, EVERY = 50, timedelta(milliseconds=100)
STALLS = (1.0, 5.0)
# Longer than a lease and its grace: who would be declared dead is by then.
AFTERMATH_SECONDS = 20.0
SLOW_US = 500
PATIENCE = 120.0


@dataclass
class Figures:
    """One size of the fleet."""

    workers: int
    start_seconds: float = 0.0
    idle_cpu: float = 0.0
    scripts_per_task: float = 0.0
    latest_ms: float = 0.0
    lost_in_stalls: list[int] = field(default_factory=list[int])
    recovery_seconds: float | None = None
    p99_us: float = 0.0
    # By phase: of the server's CPU time, and of the time on the clock.
    worst: dict[str, tuple[float, str]] = field(default_factory=dict[str, tuple[float, str]])
    slowest: dict[str, tuple[float, str]] = field(default_factory=dict[str, tuple[float, str]])

    @property
    def worst_ms(self) -> float:
        return max(self.worst.values(), default=(0.0, ""))[0]

    def row(self) -> str:
        stalls = ", ".join(str(lost) for lost in self.lost_in_stalls)
        recovery = f"{self.recovery_seconds:.1f} s" if self.recovery_seconds is not None else "–"
        return (
            f"| {self.workers:,} | {self.start_seconds:.1f} s | {self.idle_cpu:.2%} | {self.scripts_per_task:.2f} "
            f"| {self.latest_ms:.0f} ms | {stalls} | {recovery} | {self.p99_us / 1000:.2f} ms | {self.worst_ms:.2f} ms |"
        )


HEAD = (
    "| workers | all started at once, up after | idle server CPU, of a core | scripts per scheduled task | latest start "
    f"| declared dead in stalls of {' and '.join(f'{s:g} s' for s in STALLS)} | 90 % killed: their tasks run elsewhere after "
    "| script time p99 | worst script, CPU |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


class Host:
    """One process with some of the workers."""

    def __init__(self, url: str, number: int, workers: int, folder: Path) -> None:
        self.name = f"host{number}"
        self.counts = folder / f"{self.name}.json"
        with folder.joinpath(f"{self.name}.log").open("wb") as log:
            command = [sys.executable, "-m", "bench.fleet_host", url, self.name, str(workers), str(folder)]
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def scripts(self) -> Counter[str]:
        return Counter(json.loads(self.counts.read_text())) if self.counts.exists() else Counter()


class Fleet:
    """A server and the workers on it."""

    def __init__(self, server: BenchServer, pid: int, workers: int, hosts: int, folder: Path) -> None:
        self.figures = Figures(workers)
        self._host_count = min(hosts, workers)
        self._server, self._pid, self._folder = server, pid, folder
        self._redis: Any = Redis.from_url(server.url, socket_timeout=PATIENCE)
        self._log = ScriptLog(folder / "server.log")
        self.hosts: list[Host] = []

    def start(self) -> None:
        """All at once."""
        self._begin_to_time()
        began, workers = time.monotonic(), self.figures.workers
        for n in range(self._host_count):
            share = workers // self._host_count + (n < workers % self._host_count)
            self.hosts.append(Host(self._server.url, n, share, self._folder))
        self.wait_until(lambda: self._redis.zcard(f"{DOCKET}:offers") >= workers, "all of them wait for work")
        self.figures.start_seconds = time.monotonic() - began
        self._note_times("start")

    def lost(self) -> int:
        return self._redis.zcard(f"{DOCKET}:lost")

    def idle(self, seconds: float) -> None:
        time.sleep(3)
        self._begin_to_time()
        before, began = self._server.read(), time.monotonic()
        time.sleep(seconds)
        spent = self._server.read().since(before)
        self.figures.idle_cpu = spent.cpu_seconds / (time.monotonic() - began)
        self.figures.p99_us = self._p99_us()
        self._note_times("idle")

    async def scheduled(self, tasks: int) -> None:
        """Tasks at distinct times. Counted are all scripts but
        those that workers call whether there is work or not."""
        self._begin_to_time()
        before = self._scripts()
        async with Docket(DOCKET, self._server.url) as docket:
            docket.register(tick)
            begin = docket.now() + timedelta(seconds=1)
            executions = [await docket.add(tick, when=begin + n * EVERY, key=f"tick-{n}")(n) for n in range(tasks)]
            for execution in executions:
                await execution.get_result(timeout=timedelta(seconds=PATIENCE))
            for execution in executions:
                await execution.sync()
        await asyncio.sleep(1.5)
        spent = self._scripts() - before
        for always in ("renew", "reclaim", "sweep", "correct_leases", "unknown_deliveries", "count"):
            del spent[always]
        # This process adds them one by one.
        self.figures.scripts_per_task = spent.total() / tasks + 1
        late = [(e.started_at - e.when).total_seconds() * 1000 for e in executions if e.started_at is not None]
        self.figures.latest_ms = max(late)
        self._note_times("scheduled")

    def stall(self, seconds: float, aftermath: float) -> None:
        self._begin_to_time()
        before = self.lost()
        os.kill(self._pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(self._pid, signal.SIGCONT)
        time.sleep(aftermath)
        self.figures.lost_in_stalls.append(self.lost() - before)
        self._note_times("stall", without_ms=seconds * 900)

    async def kill_most(self) -> None:
        """Nine of ten processes at once, while every worker runs something."""
        victims = self.hosts[: len(self.hosts) * 9 // 10]
        if not victims:
            return
        tasks = self.figures.workers
        async with Docket(DOCKET, self._server.url) as docket:
            docket.register(hold)
            await docket.add_many(docket.call(hold, key=f"hold-{n}")(n) for n in range(tasks))
        self.wait_until(lambda: self._redis.hlen(f"{DOCKET}:running") == tasks, "all tasks run")
        names = tuple(f"{victim.name}-".encode() for victim in victims)
        self._begin_to_time()
        began = time.monotonic()
        for victim in victims:
            victim.kill()
        self.wait_until(lambda: self._run_by_survivors(names) == tasks, "all tasks run elsewhere")
        self.figures.recovery_seconds = time.monotonic() - began
        self._note_times("killed")

    def _run_by_survivors(self, dead: tuple[bytes, ...]) -> int:
        runs = self._redis.hvals(f"{DOCKET}:running")
        return sum(not any(name in run for name in dead) for run in runs)

    def stop(self) -> None:
        for host in self.hosts:
            host.kill()
        self._redis.close()

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.figures.workers} workers: after {PATIENCE:g} s still not: {what}")
            time.sleep(0.05)

    def _scripts(self) -> Counter[str]:
        return sum((host.scripts() for host in self.hosts), Counter[str]())

    def _begin_to_time(self) -> None:
        self._redis.config_set("slowlog-log-slower-than", SLOW_US)
        self._redis.config_set("slowlog-max-len", 10_000)
        self._redis.config_resetstat()
        self._redis.slowlog_reset()
        self._log.skip()

    def _p99_us(self) -> float:
        """Of all script calls since then; servers before 7.0 do not tell."""
        found = self._redis.info("latencystats").get("latency_percentiles_usec_evalsha", {})
        return float(found.get("p99", 0.0))

    def _note_times(self, phase: str, without_ms: float = float("inf")) -> None:
        """The slowest script since then. By the clock, one that was under way while the server
        stood still does not count."""
        self.figures.worst[phase] = max(self._log.worst(), self.figures.worst.get(phase, (0.0, "none")))
        times = [
            (entry["duration"] / 1000, script_name(entry["command"].split()[1].decode()))
            for entry in self._redis.slowlog_get(10_000)
            if entry["command"].startswith((b"EVALSHA", b"EVAL "))
        ]
        times.append(self.figures.slowest.get(phase, (0.0, "none")))
        self.figures.slowest[phase] = max(found for found in times if found[0] < without_ms)


def _go_before_others(pid: int) -> None:
    """The server waits for nobody, where that is allowed."""
    with contextlib.suppress(PermissionError, AttributeError):
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


def measure(
    workers: int, *, idle: float, stalls: tuple[float, ...], aftermath: float, tasks: int, hosts: int = HOSTS
) -> Figures:
    with (
        timed_scripts(),
        tempfile.TemporaryDirectory(prefix="fleet-") as folder,
        running_server(Path(folder)) as server,
    ):
        with Redis.from_url(server.url) as client:
            pid = int(client.info("server")["process_id"])
        _go_before_others(pid)
        fleet = Fleet(server, pid, workers, hosts, Path(folder))
        try:
            fleet.start()
            fleet.idle(idle)
            asyncio.run(fleet.scheduled(tasks))
            for seconds in stalls:
                fleet.stall(seconds, aftermath)
            asyncio.run(fleet.kill_most())
        finally:
            fleet.stop()
        return fleet.figures


def _by_phase(times: dict[str, tuple[float, str]]) -> str:
    return ", ".join(f"{phase} {ms:.2f} ({script})" for phase, (ms, script) in times.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--quick", action="store_true", help="short phases and no stalls")
    options = parser.parse_args()
    terms: dict[str, Any] = {"idle": IDLE_SECONDS, "stalls": STALLS, "aftermath": AFTERMATH_SECONDS, "tasks": SCHEDULED}
    if options.quick:
        terms = {"idle": 2.0, "stalls": (), "aftermath": 0.0, "tasks": 10}
    print(HEAD, flush=True)
    details: list[str] = []
    for workers in options.workers:
        figures = measure(workers, **terms)
        print(figures.row(), flush=True)
        details.append(f"{workers:,} workers, worst script by phase (ms of CPU): {_by_phase(figures.worst)}")
        details.append(f"{workers:,} workers, slowest script by phase (ms by the clock): {_by_phase(figures.slowest)}")
    print("\n" + "\n".join(details))


if __name__ == "__main__":
    main()
