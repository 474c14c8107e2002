"""A docket with something for every page: tasks in all states, letters, rules, limits, a chain."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated

from docket import (
    ConcurrencyLimit,
    Cooldown,
    Cron,
    Debounce,
    Docket,
    ExecutionProgress,
    Logged,
    Perpetual,
    Progress,
    RateLimit,
    Retry,
)
from docket.inspection.limits import read_windows
from tests.running import at_work, worker_for
from tests.waiting import eventually

LATER = timedelta(hours=3)


class Stage:
    """What the functions of the scene wait for."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()


stage = Stage()


async def quick(number: Annotated[int, Logged]) -> int:
    return number


async def slow(number: Annotated[int, Logged], progress: ExecutionProgress = Progress()) -> None:
    """Runs until the scene ends."""
    await progress.set_total(10)
    await progress.increment(4)
    await progress.set_message("four of ten")
    await stage.go_on.wait()


async def broken(order: Annotated[str, Logged]) -> None:
    raise RuntimeError(f"order {order} cannot be found")


async def flaky(order: Annotated[str, Logged], retry: Retry = Retry(attempts=3, delay=timedelta(hours=1))) -> None:
    raise ConnectionError("the provider does not answer")


async def narrow(customer: Annotated[str, Logged, ConcurrencyLimit(1)]) -> None:
    await stage.go_on.wait()


async def held_function() -> None: ...


async def nightly(at: Cron = Cron("0 2 * * *")) -> None: ...


async def rated(customer: Annotated[str, Logged, RateLimit(1, per=LATER)]) -> None: ...


async def cooled(cooldown: Cooldown = Cooldown(LATER)) -> None: ...


async def settled(debounce: Debounce = Debounce(LATER)) -> None: ...


async def hourly(perpetual: Perpetual = Perpetual(every=timedelta(hours=1))) -> None: ...


FUNCTIONS = (quick, slow, broken, flaky, narrow, held_function, nightly, rated, cooled, settled, hourly)


@asynccontextmanager
async def busy(docket: Docket) -> AsyncGenerator[None]:
    """The scene. Its worker goes on until the end."""
    stage.go_on = asyncio.Event()
    for function in FUNCTIONS:
        docket.register(function)
    later = datetime.now(UTC) + LATER
    for number in range(3):
        await docket.add(quick, key=f"quick-{number}")(number)
        await docket.add(quick, when=later + timedelta(minutes=number), key=f"later-{number}")(number)
    await docket.add(slow, key="slow-1")(1)
    await docket.add(broken, key="broken-1")("#1")
    await docket.add(broken, key="broken-2")("#2")
    await docket.add(flaky, key="flaky-1")("#3")
    await docket.add(narrow, key="narrow-1")("Ada")
    await docket.add(narrow, key="narrow-2")("Ada")
    for number in range(3):
        await docket.add(rated, key=f"rated-{number}")("Ada")
    await docket.add(cooled, key="cooled-1")()
    await docket.add(settled, key="settled-1")()
    await docket.add(hourly, when=later, key="hourly-ada")()
    await docket.pause("held_function")
    await docket.add(held_function, key="held-1")()
    await docket.strike("struck_function")
    async with worker_for(docket, name="Ada Lovelace", concurrency=8) as worker, at_work(worker):
        await eventually(lambda: _is_complete(docket), "the scene is complete")
        try:
            yield
        finally:
            stage.go_on.set()


async def _is_complete(docket: Docket) -> bool:
    counts = await docket.ledger.queries.census()
    windows = (await read_windows(docket)).windows
    is_waited_for = sum(window.waiting for window in windows) == 3 and len(windows) == 3
    return counts.dead == 2 and counts.running == 2 and counts.parked == 1 and counts.held == 1 and is_waited_for
