"""Runs a worker as a program: opens the docket, loads
the tasks, serves the ports, handles signals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from docket import instrumentation
from docket.docket import Docket
from docket.instrumentation.http import ALL_INTERFACES
from docket.registry import load_object

if TYPE_CHECKING:
    from .worker import Worker


import asyncio
import contextlib
import logging
import signal
from collections.abc import Generator


async def run_program(
    make_worker: Callable[..., Worker],
    docket: Docket,
    *,
    wait: timedelta,
    tasks: Sequence[str] = (),
    fallback_task: str | None = None,
    dependencies: Any = None,
    until_finished: bool = False,
    healthcheck_port: int | None = None,
    healthcheck_host: str = ALL_INTERFACES,
    metrics_port: int | None = None,
    metrics_host: str = ALL_INTERFACES,
    metrics_port_is_shared: bool = False,
    **options: Any,
) -> None:
    """Opens the docket, loads the objects named as `module:name`, serves health and metrics, and
    stops on SIGTERM and SIGINT.

    Raises ServerUnreachable if the server does not answer within `wait`.
    """
    docket.server.entry_seconds = max(wait.total_seconds(), 0.0)
    async with docket:
        for path in tasks:
            docket.register_collection(path, unique=True)
        worker = make_worker(
            docket,
            fallback_task=load_object(fallback_task) if fallback_task else None,
            dependencies=load_object(dependencies) if dependencies and isinstance(dependencies, str) else dependencies,
            **options,
        )
        async with worker:
            with (
                stopped_by_signals(worker.stop),
                instrumentation.metrics_server(metrics_host, metrics_port, is_shared=metrics_port_is_shared),
                instrumentation.healthcheck_server(
                    healthcheck_host, healthcheck_port, health=worker.health_problem, ready=worker.readiness_problem
                ),
            ):
                await (worker.run_until_finished() if until_finished else worker.run_forever())


logger: logging.Logger = logging.getLogger("docket.worker")


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Generator[None]:
    """Calls `stop` on SIGTERM and SIGINT. Restores the previous handlers at the end."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    received = False

    def receive(number: signal.Signals) -> None:
        nonlocal received
        if received:
            logger.info("Received %s again, requeueing the tasks that still run", number.name)
        else:
            logger.info(
                "Received %s, initiating graceful shutdown: running tasks finish first; a second signal requeues them",
                number.name,
            )
        received = True
        stop()

    for number in before:
        listen(loop, number, receive, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)


def listen(
    loop: asyncio.AbstractEventLoop, number: signal.Signals, receive: Callable[..., None], *arguments: Any
) -> None:
    """Calls `receive` in the event loop when the signal arrives."""
    try:
        loop.add_signal_handler(number, receive, *arguments)
    except NotImplementedError:
        # On Windows the event loop does not receive
        # signals, so Python's own handler wakes the loop.
        def wake(number: int, frame: object) -> None:
            loop.call_soon_threadsafe(receive, *arguments)

        signal.signal(number, wake)
