"""`docket demo`"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Annotated

import typer

from docket._aio import cancel_and_wait
from docket.cli.demo import shop
from docket.cli.demo.stages import LineStage, ScreenStage, Stage
from docket.cli.demo.story import Story
from docket.cli.demo.summary import summary
from docket.cli.support.connect import run
from docket.cli.support.failures import CommandFailed
from docket.cli.support.flags import duration
from docket.cli.support.logs import Level, docket_logs_only
from docket.cli.support.output import is_terminal
from docket.cli.support.terminal import quitting
from docket.docket import Docket
from docket.inspection.live import Observer
from docket.worker import Worker

app: typer.Typer = typer.Typer(add_completion=False)

WORKERS = ("Ada", "Grace")
SHORTEST = timedelta(seconds=2)
REMOVALS = 30
# count_stock and close_the_books: they schedule themselves again and never end.
ENDLESS_TASKS = 2
# A slow machine gets this much more time to finish the tasks before the summary.
OVERTIME_SECONDS = 30.0

# Serves a dashboard, and yields its address.
Dashboard = Callable[[Docket], AbstractAsyncContextManager[str]]

Length = Annotated[
    timedelta,
    typer.Option(
        "--for",
        parser=duration,
        envvar="DOCKET_DEMO_FOR",
        metavar="DURATION",
        show_default="20s",
        help="The length of the demo.",
    ),
]


Web = Annotated[
    bool,
    typer.Option(
        "--web",
        envvar="DOCKET_DEMO_WEB",
        help="Show the shop in a browser, too. At a terminal the demo then goes on until you quit.",
    ),
]


@app.command()
def demo(length: Length = timedelta(seconds=20), web: Web = False) -> None:
    """See docket at work: about 20 seconds, no server and no setup.

    Two workers run the tasks of a small shop on the embedded engine, in a temporary folder. Press q
    to quit early.
    """
    if length < SHORTEST:
        raise typer.BadParameter("it must be at least 2s", param_hint="'--for'")
    # Some tasks fail on purpose. Their tracebacks would disturb the display.
    with docket_logs_only(Level.CRITICAL):
        run(_demo(length.total_seconds(), _dashboard() if web else None))


def _dashboard() -> Dashboard:
    # The dashboard needs packages that the demo alone does not.
    return importlib.import_module("docket.cli.demo.dashboard").dashboard


async def _demo(seconds: float, dashboard: Dashboard | None) -> None:
    with _temporary_folder() as folder:
        async with AsyncExitStack() as stack:
            docket = await stack.enter_async_context(Docket("shop", f"embedded://{folder}"))
            observer = Observer(docket)
            await stack.enter_async_context(observer.listening())
            stopped = asyncio.Event()
            stack.enter_context(quitting(stopped.set))
            await stack.enter_async_context(_working(docket))
            address = await stack.enter_async_context(dashboard(docket)) if dashboard is not None else None
            began = time.monotonic()
            story = await _play(docket, observer, seconds, stopped, address)
            took = time.monotonic() - began
    totals = observer.state.totals
    engine = f"{docket.server.engine_name} {docket.server.engine_version}"
    for line in summary(took, engine, totals, shop.diary, story):
        typer.echo(line)
    if not totals.completed:
        raise CommandFailed("no task completed: something is wrong with this machine or with docket")


@contextmanager
def _temporary_folder() -> Generator[str]:
    # No other process will use this engine, so it may stop at once.
    os.environ.setdefault("DOCKET_ENGINE_LINGER", "0")
    folder = tempfile.mkdtemp(prefix="docket-demo-")
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder: str) -> None:
    """Removes the folder. Repeats this, because its server may still write for a moment."""
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)


@asynccontextmanager
async def _working(docket: Docket) -> AsyncGenerator[None]:
    """Runs two workers. They could also be two processes on two machines."""
    for task in shop.tasks:
        docket.register(task)
    async with AsyncExitStack() as stack:
        running: list[asyncio.Task[None]] = []
        for name in WORKERS:
            worker = Worker(docket, name=name, grace_period=timedelta(seconds=1))
            await stack.enter_async_context(worker)
            running.append(asyncio.create_task(worker.run_forever(), name=f"{docket.name} - {name}"))
        try:
            yield
        finally:
            await cancel_and_wait(running, "docket: the demo is over")


async def _play(
    docket: Docket, observer: Observer, seconds: float, stopped: asyncio.Event, address: str | None
) -> Story:
    """Runs the story and shows its effects, until all tasks are done, the time is over or the user
    quits. With a dashboard and a terminal, the story begins again until the user quits."""
    state, url = observer.state, docket.server.shown_url
    goes_on = address is not None and is_terminal()
    foot = f"dashboard: {address}" if address else f"from another terminal: docket top --docket shop --url {url}"
    stage = ScreenStage(state, None if goes_on else seconds, foot) if is_terminal() else LineStage(state)
    if address is not None:
        stage.say(f"The dashboard is at {address}")
    story = Story(docket, seconds, stage.say)
    telling = asyncio.create_task(_tell(story, again=goes_on), name="docket demo - story")
    end = math.inf if goes_on else time.monotonic() + seconds
    try:
        with stage:
            await _show(stage, observer, telling, end, stopped)
    finally:
        await cancel_and_wait([telling], "docket: the demo is over")
    return story


async def _tell(story: Story, *, again: bool) -> None:
    await story.tell()
    while again:
        await asyncio.sleep(story.pause)
        await story.tell()


async def _show(
    stage: Stage, observer: Observer, telling: asyncio.Task[None], end: float, stopped: asyncio.Event
) -> None:
    while not stopped.is_set() and (left := end + OVERTIME_SECONDS - time.monotonic()) > 0:
        await observer.refresh()
        stage.draw()
        if telling.done():
            # Raise the error of a story that failed.
            telling.result()
            if observer.state.census is not None and observer.state.census.unfinished <= ENDLESS_TASKS:
                return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), min(stage.interval, left))
    await observer.refresh()
    stage.draw()
