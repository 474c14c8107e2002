"""The tools of every scenario: its own docket, workers
that check often, and functions to wait and to listen.

Only the standard library, OpenTelemetry and the public API: this runs on both sides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from docket import Docket, Worker

PATIENCE = 15.0
TICK = timedelta(milliseconds=5)


@dataclass(frozen=True)
class Place:
    """The server, and a name that no other scenario uses."""

    url: str
    name: str

    def docket(self, **options: Any) -> Docket:
        return Docket(**{"name": self.name, "url": self.url} | options)


def now() -> datetime:
    return datetime.now(UTC)


def later() -> datetime:
    return now() + timedelta(hours=1)


def worker_for(docket: Docket, **options: Any) -> Worker:
    return Worker(docket, **{"minimum_check_interval": TICK, "scheduling_resolution": TICK} | options)


async def run_all(docket: Docket, **options: Any) -> str:
    """Runs all tasks. Returns whether the run ended by itself."""
    async with worker_for(docket, **options) as worker:
        return await ends(worker.run_until_finished())


async def ends(run: Coroutine[Any, Any, Any], seconds: float = PATIENCE) -> str:
    """Whether a run returns by itself. A cancelled worker
    returns normally, so a plain timeout would not show it."""
    task = asyncio.ensure_future(run)
    _, pending = await asyncio.wait([task], timeout=seconds)
    if pending:
        task.cancel()
        await asyncio.wait([task], timeout=seconds)
        return "goes on"
    return f"raises {type(error).__name__}" if (error := task.exception()) else "returns"


@contextlib.asynccontextmanager
async def running(docket: Docket, **options: Any) -> AsyncGenerator[Worker]:
    """A worker that runs beside the scenario."""
    async with worker_for(docket, **options) as worker:
        run = asyncio.ensure_future(worker.run_forever())
        try:
            yield worker
        finally:
            run.cancel()
            await asyncio.wait([run], timeout=PATIENCE)


async def eventually(holds: Callable[[], Any], seconds: float = PATIENCE) -> bool:
    """Whether a condition becomes true in time. It may be a coroutine function."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        found = holds()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return True
        await asyncio.sleep(0.01)
    return False


async def outcome(call: Awaitable[Any] | Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """The result of a call: its value, or the kinds of error that a caller could catch."""
    try:
        result = call() if callable(call) else call
        if asyncio.iscoroutine(result) or asyncio.isfuture(result):
            result = await asyncio.wait_for(result, seconds)
    except BaseException as error:
        return raised(error)
    return result


def raised(error: BaseException) -> str:
    """The error as a caller can catch it: the nearest kind that is not the package's own."""
    for kind in type(error).__mro__:
        if not kind.__module__.startswith("docket"):
            return f"raises {kind.__name__}"
    return "raises"


class Heard(logging.Handler):
    """Every record of the package's loggers."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def lines(self, logger: str = "docket", at_least: int = logging.INFO) -> list[str]:
        return [
            record.getMessage()
            for record in self.records
            if record.levelno >= at_least and (record.name == logger or record.name.startswith(f"{logger}."))
        ]

    def has(self, beginning: str, logger: str = "docket") -> bool:
        return any(line.lstrip().startswith(beginning) for line in self.lines(logger))


@contextlib.contextmanager
def hearing() -> Generator[Heard]:
    heard, logger = Heard(), logging.getLogger("docket")
    level = logger.level
    logger.addHandler(heard)
    logger.setLevel(logging.DEBUG)
    try:
        yield heard
    finally:
        logger.removeHandler(heard)
        logger.setLevel(level)


def plain(text: str) -> str:
    """A line without the parts that differ from run to run: durations, identifiers, times."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<key>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?", "<time>", text)
    return re.sub(r"\s*[-+]?\d+(?:\.\d+)?(?:ms|µs|us|s|m|h)\b", "<duration>", text)


@dataclass(frozen=True)
class Ran:
    code: int | None
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


async def command(*args: str, url: str | None = None, seconds: float = 30, **environment: str) -> Ran:
    """The command line of the package, run to its end."""
    process = await begin(*args, url=url, **environment)
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        return Ran(None, out.decode(), err.decode())
    return Ran(process.returncode, out.decode(), err.decode())


async def begin(*args: str, url: str | None = None, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "docket",
        *args,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ
        | {"NO_COLOR": "1", "COLUMNS": "200", "PYTHONWARNINGS": "ignore"}
        | ({"DOCKET_URL": url} if url else {})
        | environment,
    )
