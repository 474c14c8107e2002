"""`docket bench`"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

import typer

from docket._version import __version__
from docket.cli.connect import run
from docket.cli.docket_options import on_server
from docket.cli.event_loop import loop_factory
from docket.cli.logs import Level, docket_logs_only
from docket.cli.measurement import Bench, Rate, Times
from docket.cli.output import write_json
from docket.cli.support.flags import Json, positive
from docket.docket import Docket
from docket.settings import change_settings

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
