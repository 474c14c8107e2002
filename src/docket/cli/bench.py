"""`docket bench`"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import typer

from docket._aio import cancel_and_wait
from docket._version import __version__
from docket.cli.support.connect import loop_factory, run
from docket.cli.support.docket_options import on_server
from docket.cli.support.flags import Json, positive
from docket.cli.support.logs import Level, docket_logs_only
from docket.cli.support.output import write_json
from docket.docket import Docket
from docket.settings import change_settings
from docket.worker import Worker

app: typer.Typer = typer.Typer(add_completion=False)

# Nobody reads the finished tasks of a benchmark, so the server forgets them soon.
REMEMBERED = timedelta(seconds=10)

Tasks = Annotated[
    int,
    typer.Option(
        "--tasks",
        "-n",
        envvar="DOCKET_BENCH_TASKS",
        parser=positive,
        metavar="NUMBER",
        help="Add and run this many tasks.",
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(
        "--concurrency",
        envvar="DOCKET_BENCH_CONCURRENCY",
        parser=positive,
        metavar="NUMBER",
        help="Run at most this many tasks at a time.",
    ),
]


@app.command()
@on_server
def bench(docket: Docket, tasks: Tasks = 5000, concurrency: Concurrency = 100, json: Json = False) -> None:
    """Measure docket's speed on your server.

    The benchmark takes a few seconds. It uses its own docket and removes it at the end. One process
    adds and runs empty tasks, so the figures are the most that one worker process can reach.
    """
    # Log lines would slow down what is measured.
    with docket_logs_only(Level.ERROR):
        # Workers use this event loop too.
        run(_bench(docket, tasks, concurrency, json), loop_factory())


async def _bench(docket: Docket, tasks: int, concurrency: int, as_json: bool) -> None:
    async with _private(docket):
        server = docket.server
        engine = f"{server.engine_name} {server.engine_version}"
        report = JsonReport() if as_json else LineReport()
        report.head(engine, server.shown_url)
        work = Bench(docket)
        report.times("round_trip", "one command to the server (round trip)", await work.round_trips())
        one_by_one = await work.add_one_by_one()
        report.rate("add", "add, one by one", one_by_one)
        many = await work.add_many(tasks)
        report.rate("add_many", "add_many", many)
        waiting = one_by_one.count + many.count
        report.rate("run", f"run, one worker, concurrency {concurrency}", await work.drain(waiting, concurrency))
        await docket.clear()
        to_body, to_result = await work.latencies()
        report.times("add_to_running", "from add to start of the task", to_body)
        report.times("add_to_result", "from add to result", to_result)
        report.foot()


@asynccontextmanager
async def _private(docket: Docket) -> AsyncGenerator[None]:
    """Opens the docket under a new name, and removes all its keys at the end."""
    change_settings(docket, name=f"docket-bench-{secrets.token_hex(4)}", execution_ttl=REMEMBERED)
    docket.server.entry_seconds = 0.0
    async with docket:
        try:
            yield
        finally:
            await docket.clear()
            async with docket.redis() as client:
                await client.unlink(*docket.keys.all)


class LineReport:
    """Writes a line for each measurement as soon as it is done."""

    def head(self, engine: str, url: str) -> None:
        typer.echo(f"docket {__version__} on {engine} at {url}")

    def rate(self, name: str, words: str, rate: Rate) -> None:
        typer.echo(f"  {words:<40} {rate.per_second:>10,.0f} /s")

    def times(self, name: str, words: str, times: Times) -> None:
        half, most = times.percentile(0.5) * 1000, times.percentile(0.99) * 1000
        typer.echo(f"  {words:<40} {half:>10,.2f} ms   99 of 100 within {most:,.2f} ms")

    def foot(self) -> None:
        pass


class JsonReport:
    """Writes one object at the end."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def head(self, engine: str, url: str) -> None:
        self._found |= {"docket": __version__, "engine": engine, "url": url}

    def rate(self, name: str, words: str, rate: Rate) -> None:
        self._found[f"{name}_per_second"] = round(rate.per_second, 1)

    def times(self, name: str, words: str, times: Times) -> None:
        self._found[f"{name}_ms"] = {
            "p50": round(times.percentile(0.5) * 1000, 3),
            "p99": round(times.percentile(0.99) * 1000, 3),
        }

    def foot(self) -> None:
        write_json(self._found)


# Each measurement ends after about this long, with the figures it has: a slow server
# must not make the benchmark endless.
PATIENCE_SECONDS = 10.0
ROUND_TRIPS, ONE_BY_ONE, LATENCIES = 200, 500, 200
CHUNK = 1000


@dataclass(frozen=True)
class Rate:
    """A count and the seconds it took."""

    count: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.count / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class Times:
    """Repeated measurements of one duration, in seconds."""

    values: Sequence[float]

    def percentile(self, share: float) -> float:
        ordered = sorted(self.values)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class Bench:
    """A benchmark on one docket. Its tasks only record that they ran."""

    def __init__(self, docket: Docket) -> None:
        self._docket = docket
        self._ran = 0
        self._awaited = 0
        self._all_ran = asyncio.Event()
        self._started = 0.0
        docket.register(self._record_run, names=["bench"])

    async def _record_run(self, number: int) -> int:
        self._started = time.perf_counter()
        self._ran += 1
        if self._ran >= self._awaited:
            self._all_ran.set()
        return number

    async def round_trips(self) -> Times:
        """The times of single commands to the server."""
        values: list[float] = []
        end = time.monotonic() + PATIENCE_SECONDS
        while len(values) < ROUND_TRIPS and time.monotonic() < end:
            began = time.perf_counter()
            await self._docket.ledger.ping()
            values.append(time.perf_counter() - began)
        return Times(values)

    async def add_one_by_one(self) -> Rate:
        began, count = time.perf_counter(), 0
        while count < ONE_BY_ONE and time.perf_counter() - began < PATIENCE_SECONDS:
            await self._docket.add("bench")(count)
            count += 1
        return Rate(count, time.perf_counter() - began)

    async def add_many(self, tasks: int) -> Rate:
        call = self._docket.call("bench")
        began, count = time.perf_counter(), 0
        while count < tasks and time.perf_counter() - began < PATIENCE_SECONDS:
            chunk = min(CHUNK, tasks - count)
            executions = await self._docket.add_many(call(number) for number in range(chunk))
            for execution in executions:
                if execution.schedule_exception is not None:
                    raise execution.schedule_exception
            count += chunk
        return Rate(count, time.perf_counter() - began)

    async def drain(self, waiting: int, concurrency: int) -> Rate:
        """The rate at which one worker runs all waiting tasks."""
        self._ran, self._awaited = 0, waiting
        self._all_ran.clear()
        began = time.perf_counter()
        async with self._working(concurrency):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_ran.wait(), PATIENCE_SECONDS * 2)
            return Rate(self._ran, time.perf_counter() - began)

    async def latencies(self) -> tuple[Times, Times]:
        """The times from `add` to the start of the task, and
        to the result in the caller, with an idle worker."""
        to_body: list[float] = []
        to_result: list[float] = []
        end = time.monotonic() + PATIENCE_SECONDS
        async with self._working(concurrency=10):
            await (await self._docket.add("bench")(0)).get_result(timeout=timedelta(seconds=PATIENCE_SECONDS))
            while len(to_body) < LATENCIES and time.monotonic() < end:
                began = time.perf_counter()
                execution = await self._docket.add("bench")(1)
                await execution.get_result(timeout=timedelta(seconds=PATIENCE_SECONDS))
                to_result.append(time.perf_counter() - began)
                to_body.append(self._started - began)
        return Times(to_body), Times(to_result)

    @asynccontextmanager
    async def _working(self, concurrency: int) -> AsyncGenerator[None]:
        async with Worker(self._docket, name="bench", concurrency=concurrency) as worker:
            running = asyncio.create_task(worker.run_forever(), name=f"{self._docket.name} - bench")
            try:
                yield
            finally:
                await cancel_and_wait([running], "docket: the benchmark is over")
