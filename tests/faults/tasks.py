"""The tasks that worker processes of these tests run. Each reports what happens to it."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache

from docket import Cron, CurrentDocket, CurrentExecution, Docket, Execution, MaxLosses, Perpetual, Retry, TaskKey

from .reports import VARIABLE, Reports


class _Reports:
    """Opened with the first report: test processes
    import the tasks, too, and hardly ever run them."""

    def write(self, event: str, key: str) -> None:
        _open(os.environ[VARIABLE]).write(event, key)

    def is_released(self, name: str) -> bool:
        return _open(os.environ[VARIABLE]).is_released(name)


@cache
def _open(url: str) -> Reports:
    return Reports(url)


reports = _Reports()


@contextmanager
def reported(key: str) -> Iterator[None]:
    reports.write("start", key)
    try:
        yield
    except asyncio.CancelledError:
        reports.write("cancelled", key)
        raise
    reports.write("finish", key)


async def nap(seconds: float, key: str = TaskKey()) -> str:
    """Sleeps, and says who ran it."""
    with reported(key):
        await asyncio.sleep(seconds)
    return str(os.getpid())


async def hold(name: str, key: str = TaskKey()) -> str:
    """Runs until the test releases the name."""
    with reported(key):
        while not reports.is_released(name):
            await asyncio.sleep(0.02)
    return str(os.getpid())


async def block(seconds: float, key: str = TaskKey()) -> None:
    """Holds up the event loop."""
    with reported(key):
        time.sleep(seconds)


async def block_until_released(name: str, key: str = TaskKey()) -> None:
    """Holds up the event loop until the test releases the name."""
    with reported(key):
        while not reports.is_released(name):
            time.sleep(0.02)


async def leave(how: str, key: str = TaskKey()) -> None:
    """Takes its process along."""
    reports.write("start", key)
    # The tasks beside it must be under way when this happens.
    await asyncio.sleep(0.1)
    if how == "exit":
        os._exit(0)
    if how == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(3600)
    os.kill(os.getpid(), signal.SIGKILL)


async def leave_once(how: str, key: str = TaskKey(), max_losses: MaxLosses = MaxLosses(1)) -> None:
    """The same, once and for all."""
    await leave(how, key)


async def hold_progress(name: str, execution: Execution = CurrentExecution()) -> None:
    """Runs until released, and then writes progress: a write of a run that may no longer count."""
    with reported(execution.key):
        while not reports.is_released(name):
            await asyncio.sleep(0.02)
        await execution.progress.set_message(str(os.getpid()))


async def swallow(name: str, key: str = TaskKey(), execution: Execution = CurrentExecution()) -> str:
    """Ends well in spite of a cancel, as a run that does not know that it no longer counts."""
    try:
        with reported(key):
            while not reports.is_released(name):
                await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        await execution.progress.set_message("stale")
    return str(os.getpid())


async def fail_twice(retry: Retry = Retry(attempts=3, delay=timedelta(seconds=1)), key: str = TaskKey()) -> int:
    """Fails, fails, and ends well."""
    reports.write("start", key)
    if retry.attempt < 3:
        raise RuntimeError(f"attempt {retry.attempt}")
    return retry.attempt


async def pass_on(key_of_next: str, docket: Docket = CurrentDocket(), key: str = TaskKey()) -> None:
    """Adds another task, due now by this process's clock."""
    with reported(key):
        await docket.add(nap, key=key_of_next)(0)


async def tick(
    perpetual: Perpetual = Perpetual(every=timedelta(seconds=0.2), automatic=True), key: str = TaskKey()
) -> None:
    """Runs by itself, again and again."""
    reports.write("start", key)


class HalfSeconds(Cron):
    """A time every half second: a test need not wait for the minute."""

    def slot_after(self, moment: datetime) -> datetime:
        halves = math.floor(moment.timestamp() * 2) + 1
        return datetime.fromtimestamp(halves / 2, UTC)


async def at_half_seconds(
    cron: HalfSeconds = HalfSeconds("* * * * *"), execution: Execution = CurrentExecution()
) -> None:
    """Reports its slots."""
    reports.write("slot", execution.when.isoformat())


every_task = [nap, hold, block, block_until_released, leave, leave_once, hold_progress, swallow, fail_twice, pass_on]
automatic_tasks = [tick]
cron_tasks = [at_half_seconds]
only_nap = [nap]
only_hold = [hold]
