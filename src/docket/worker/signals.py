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
    """Calls `stop` on SIGTERM and SIGINT; the handlers found before are put back at the end."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    told = False

    def receive(number: signal.Signals) -> None:
        nonlocal told
        if told:
            logger.info("Received %s again, handing back the tasks that still run", number.name)
        else:
            logger.info(
                "Received %s, initiating graceful shutdown: running tasks are finished first; told again, they are "
                "handed back",
                number.name,
            )
        told = True
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
    """Calls `receive` in the event loop when the signal comes."""
    try:
        loop.add_signal_handler(number, receive, *arguments)
    except NotImplementedError:
        # Windows: the event loop hears of no signals, so Python's own handler wakes it.
        def wake(number: int, frame: object) -> None:
            loop.call_soon_threadsafe(receive, *arguments)

        signal.signal(number, wake)
