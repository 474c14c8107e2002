"""A worker in a thread of its own, with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from docket import Docket
from tests.running import worker_for
from tests.waiting import SECONDS

from .tasks import TASKS


@contextmanager
def working(name: str, url: str) -> Iterator[None]:
    """A worker that runs beside the test. It is stopped at the end."""
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    is_ready = threading.Event()

    async def work() -> None:
        stop = asyncio.Event()
        stops.append((asyncio.get_running_loop(), stop))
        async with Docket(name=name, url=url) as docket:
            for task in TASKS:
                docket.register(task)
            async with worker_for(docket) as worker:
                run = asyncio.create_task(worker.run_forever())
                is_ready.set()
                await stop.wait()
                run.cancel()
                await asyncio.wait([run])

    thread = threading.Thread(target=asyncio.run, args=(work(),), name="a worker's thread in a test")
    thread.start()
    try:
        assert is_ready.wait(SECONDS)
        yield
    finally:
        for loop, stop in stops:
            loop.call_soon_threadsafe(stop.set)
        thread.join(SECONDS)
