"""Stops a worker on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Generator
from typing import Any

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
