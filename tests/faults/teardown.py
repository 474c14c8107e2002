"""A program that closes things under a running worker: `python -m tests.faults.teardown <order> <body> <method> <url>`."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from docket import Docket, Worker

order, body, method, url = sys.argv[1:]
started = asyncio.Event()


async def plain() -> None:
    started.set()
    await asyncio.sleep(600)


async def stubborn() -> None:
    """Ignores every cancel."""
    started.set()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            print("not yet", flush=True)


async def short() -> None:
    started.set()
    await asyncio.sleep(0.5)
    print("finished by itself", flush=True)


class Trouble(Exception):
    pass


def closing() -> None:
    """From now on the clock runs. The exit handler is registered before docket's own, so it is called after them."""
    since.append(time.monotonic())
    print("closing", flush=True)


since: list[float] = []
atexit.register(lambda: print(f"ended after {time.monotonic() - since[-1]:.2f} s", flush=True))


def new_docket() -> Docket:
    # Only a hand-back explains that somebody else gets the task soon.
    docket = Docket("teardown", url, heartbeat_interval=timedelta(seconds=2), missed_heartbeats=30)
    docket.register({"plain": plain, "stubborn": stubborn, "short": short}[body])
    return docket


async def begin(docket: Docket, worker: Worker) -> asyncio.Task[None]:
    """Returns when the body runs."""
    runs: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "run_forever": worker.run_forever,
        "run_until_finished": worker.run_until_finished,
        "run_at_most": lambda: worker.run_at_most({"task": 1}),
    }
    await docket.add(body, key="task")()
    running = asyncio.create_task(runs[method](), name="the run")
    await started.wait()
    return running


async def opened() -> tuple[Docket, Worker, asyncio.Task[None]]:
    docket = await new_docket().__aenter__()
    worker = await Worker(docket).__aenter__()
    return docket, worker, await begin(docket, worker)


def check(running: asyncio.Task[None]) -> None:
    assert running.done(), "the run has returned"
    running.result()
    print("the run returned", flush=True)


async def left() -> None:
    async with new_docket() as docket:
        async with Worker(docket) as worker:
            running = await begin(docket, worker)
            closing()
        check(running)


async def exception() -> None:
    async with new_docket() as docket:
        try:
            async with Worker(docket) as worker:
                running = await begin(docket, worker)
                closing()
                raise Trouble
        finally:
            check(running)


async def exception_in_docket() -> None:
    async with new_docket() as docket:
        worker = await Worker(docket).__aenter__()
        await begin(docket, worker)
        closing()
        raise Trouble


async def docket_first() -> None:
    docket, worker, running = await opened()
    closing()
    await docket.__aexit__(None, None, None)
    check(running)
    await worker.__aexit__(None, None, None)


async def docket_only() -> None:
    async with new_docket() as docket:
        worker = await Worker(docket).__aenter__()
        await begin(docket, worker)
        closing()


async def server_only() -> None:
    """As if the order of the docket's own steps were wrong."""
    docket, _, running = await opened()
    closing()
    await docket.server.__aexit__(None, None, None)
    await asyncio.wait([running])
    check(running)


async def cancelled() -> None:
    main = asyncio.current_task()
    assert main is not None
    async with new_docket() as docket, Worker(docket) as worker:
        await begin(docket, worker)
        closing()
        main.cancel()
        await asyncio.sleep(600)


async def interrupted() -> None:
    async with new_docket() as docket, Worker(docket) as worker:
        await begin(docket, worker)
        closing()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(600)


async def loop_ends() -> None:
    """Nothing is closed: asyncio.run cancels every task."""
    await opened()
    closing()


def loop_closed() -> None:
    """Not even the tasks are cancelled."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(opened())
    closing()
    loop.close()


def loop_left() -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(opened())
    closing()


def docket_after_loop() -> None:
    loop = asyncio.new_event_loop()
    docket, worker, _ = loop.run_until_complete(opened())
    closing()
    loop.close()

    async def close() -> None:
        await docket.__aexit__(None, None, None)
        await worker.__aexit__(None, None, None)

    asyncio.run(close())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    chosen = globals()[order]
    try:
        if asyncio.iscoroutinefunction(chosen):
            asyncio.run(chosen())
        else:
            chosen()
    except (Trouble, asyncio.CancelledError, KeyboardInterrupt) as error:
        print(f"ended by {type(error).__name__}", flush=True)
