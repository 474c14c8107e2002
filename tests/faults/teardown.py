"""A program that closes things under a running worker:
`python -m tests.faults.teardown <order> <body> <method> <url>`."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
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


async def closing_docket() -> None:
    """Closes the docket that it runs on."""
    started.set()
    closing()
    await opened_dockets[0].__aexit__(None, None, None)
    print("the body goes on", flush=True)
    await asyncio.sleep(600)


async def leaving_both() -> None:
    """Leaves worker and docket."""
    started.set()
    closing()
    await opened_workers[0].__aexit__(None, None, None)
    await opened_dockets[0].__aexit__(None, None, None)
    await asyncio.sleep(600)


async def short() -> None:
    started.set()
    await asyncio.sleep(0.5)
    print("finished by itself", flush=True)


class Trouble(Exception):
    pass


def closing() -> None:
    """From now on the clock runs. The exit handler is registered
    before docket's own, so it is called after them."""
    since.append(time.monotonic())
    print("closing", flush=True)


since: list[float] = []
opened_dockets: list[Docket] = []
opened_workers: list[Worker] = []
runs: list[asyncio.Task[None]] = []
bodies = {f.__name__: f for f in (plain, stubborn, short, closing_docket, leaving_both)}
atexit.register(lambda: print(f"ended after {time.monotonic() - since[-1]:.2f} s", flush=True))


def new_docket() -> Docket:
    # Only a requeue explains that another worker gets the task soon.
    docket = Docket("teardown", url, heartbeat_interval=timedelta(seconds=2), missed_heartbeats=30)
    docket.register(bodies[body])
    opened_dockets.append(docket)
    return docket


async def begin(docket: Docket, worker: Worker) -> asyncio.Task[None]:
    """Returns when the body runs."""
    methods: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "run_forever": worker.run_forever,
        "run_until_finished": worker.run_until_finished,
        "run_at_most": lambda: worker.run_at_most({"task": 1}),
    }
    await docket.add(body, key="task")()
    running = asyncio.create_task(methods[method](), name="the run")
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


async def inside() -> None:
    """The body closes what it needs."""
    async with new_docket() as docket, Worker(docket) as worker:
        opened_workers.append(worker)
        await docket.add(body, key="task")()
        await worker.run_forever()
        print("the run returned", flush=True)


async def hangs() -> None:
    """The server goes on to take connections, and says nothing any more."""
    async with new_docket() as docket, Worker(docket) as worker:
        await begin(docket, worker)
        hang()
        raise Trouble


def hang() -> None:
    os.kill(int(os.environ["SERVER_PID"]), signal.SIGSTOP)
    closing()


@asynccontextmanager
async def on_silent_server(**options: Any) -> AsyncIterator[tuple[Worker, asyncio.Task[None]]]:
    """A worker whose server says nothing any more, and its run, which has to end."""
    async with new_docket() as docket, Worker(docket, **options) as worker:
        running = await begin(docket, worker)
        hang()
        yield worker, running
        await asyncio.wait([running])
        check(running)


async def hangs_in_grace() -> None:
    """The task does not end within the grace period."""
    async with on_silent_server(grace_period=timedelta(seconds=1)) as (worker, _):
        worker.stop()


async def hangs_and_told_twice() -> None:
    async with on_silent_server() as (worker, _):
        worker.stop()
        await asyncio.sleep(0.5)
        worker.stop()


async def hangs_and_cancelled_twice() -> None:
    async with on_silent_server() as (_, running):
        running.cancel()
        await asyncio.sleep(0.5)
        running.cancel()


async def five_workers_hang() -> None:
    async with AsyncExitStack() as stack:
        docket = await stack.enter_async_context(new_docket())
        for number in range(5):
            worker = await stack.enter_async_context(Worker(docket, name=f"worker-{number}", concurrency=1))
            started.clear()
            await docket.add(body, key=f"task-{number}")()
            runs.append(asyncio.create_task(worker.run_forever()))
            await started.wait()
        hang()
        raise Trouble


async def two_workers() -> None:
    async with new_docket() as docket, Worker(docket, concurrency=1) as first, Worker(docket, concurrency=1) as second:
        for number, worker in enumerate((first, second)):
            started.clear()
            await docket.add(body, key=f"task-{number}")()
            runs.append(asyncio.create_task(worker.run_forever()))
            await started.wait()
        closing()
        raise Trouble


async def left() -> None:
    async with new_docket() as docket:
        async with Worker(docket) as worker:
            running = await begin(docket, worker)
            closing()
        check(running)


async def exception() -> None:
    runs: list[asyncio.Task[None]] = []
    async with new_docket() as docket:
        try:
            async with Worker(docket) as worker:
                runs.append(await begin(docket, worker))
                closing()
                raise Trouble
        finally:
            check(runs[0])


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
