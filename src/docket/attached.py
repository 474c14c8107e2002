"""The workers that run on a docket in this process. They end before the docket closes."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from typing import Protocol

from docket.errors import NotOpen

logger: logging.Logger = logging.getLogger("docket.docket")

# Longer than a worker needs to give up a body that ignores its cancel.
LONGEST_WAIT = 8.0
# Workers that close within TOGETHER_SECONDS of each other share one deadline, for at most
# LONGEST_TOGETHER.
TOGETHER_SECONDS, LONGEST_TOGETHER = 1.0, 6.0


class AttachedWorker(Protocol):
    """A worker while it runs."""

    name: str

    def is_inside(self) -> bool: ...

    async def end_run(self, *, at_once: bool) -> None: ...


class AttachedWorkers:
    """A worker attaches when its session begins and detaches when the session has ended."""

    def __init__(self) -> None:
        self._workers: list[AttachedWorker] = []
        self._closed = False
        # When the current group of workers began to close, and when one of them last closed.
        self._began_at = self._heard_at = -math.inf
        # Whether the server did not answer a worker of that group.
        self.is_silent: bool = False

    def open(self) -> None:
        self._closed = False

    def attach(self, worker: AttachedWorker) -> None:
        if self._closed:
            raise NotOpen("the docket closes: a worker cannot start on it")
        self._workers.append(worker)

    def detach(self, worker: AttachedWorker) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
        self._heard_at = time.monotonic()

    def end_began(self) -> float:
        """The time from which the deadlines of a worker that ends at once count."""
        now = time.monotonic()
        if now - self._heard_at > TOGETHER_SECONDS or now - self._began_at > LONGEST_TOGETHER:
            self._began_at, self.is_silent = now, False
        self._heard_at = now
        return self._began_at

    def is_inside(self) -> bool:
        """Whether the caller is a task body of one of these
        workers. Such a caller must not wait for them."""
        return any(worker.is_inside() for worker in self._workers)

    async def end_all(self) -> None:
        """Ends all workers and waits for them, at most LONGEST_WAIT.
        Slower workers notice later that the docket is closed."""
        self._closed = True
        if not self._workers:
            return
        names = ", ".join(worker.name for worker in self._workers)
        logger.warning("the docket closes while a worker runs (%s): its tasks are requeued", names)
        ends = [asyncio.create_task(worker.end_run(at_once=True)) for worker in list(self._workers)]
        await _wait(ends)


async def _wait(ends: Sequence[asyncio.Task[None]]) -> None:
    """Raises a cancel of the caller only after the workers have
    requeued their tasks, which takes a bounded time."""
    deadline = time.monotonic() + LONGEST_WAIT
    interrupted: asyncio.CancelledError | None = None
    while (pending := [end for end in ends if not end.done()]) and time.monotonic() < deadline:
        try:
            await asyncio.wait(pending, timeout=deadline - time.monotonic())
        except asyncio.CancelledError as error:
            interrupted = error
    for end in ends:
        end.cancel()
    if interrupted is not None:
        raise interrupted
