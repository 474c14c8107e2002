"""A dashboard that is served over HTTP, on an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager

from starlette.applications import Starlette

from docket.web.http_server import listen, serving

Applications = Callable[[], AbstractAsyncContextManager[Starlette]]


@contextmanager
def served(applications: Applications) -> Generator[str]:
    """Serves the application that the context makes, and yields its address."""
    started, stopping = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    address: list[str] = []
    problems: list[BaseException] = []

    async def serve() -> None:
        try:
            async with applications() as application:
                with listen("127.0.0.1", 0) as listening:
                    async with serving(application, listening):
                        address.append(f"http://127.0.0.1:{listening.getsockname()[1]}")
                        started.set()
                        await stopping.wait()
        except BaseException as error:
            problems.append(error)
            raise
        finally:
            started.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="dashboard")
    thread.start()
    started.wait()
    try:
        if problems:
            raise problems[0]
        yield address[0]
    finally:
        if not problems:
            loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


__all__ = ["AsyncGenerator", "served"]
