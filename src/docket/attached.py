"""The workers that run on a docket of this process, which end before their docket closes."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from typing import Protocol

from docket.errors import NotOpen

logger: logging.Logger = logging.getLogger("docket.docket")

# Longer than a worker takes to leave a body behind that ignores its cancel.
LONGEST_WAIT = 8.0
# Workers that are closed one after the other, with less than the first of these seconds between
# them, share one deadline, but not for longer than the second.
TOGETHER_SECONDS, LONGEST_TOGETHER = 1.0, 6.0


class AttachedWorker(Protocol):
    """A worker while it runs."""

    name: str

    def is_inside(self) -> bool: ...

    async def end_run(self, *, at_once: bool) -> None: ...


class AttachedWorkers:
    """Workers attach when a run begins and detach when it has ended."""

    def __init__(self) -> None:
        self._workers: list[AttachedWorker] = []
        self._closed = False
        # When the last end of several workers began, and when one of them was last heard of.
        self._began_at = self._heard_at = -math.inf
        # Whether the server did not answer a worker that took part in that end.
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
        """The moment from which the end of a worker that ends at once is counted."""
        now = time.monotonic()
        if now - self._heard_at > TOGETHER_SECONDS or now - self._began_at > LONGEST_TOGETHER:
            self._began_at, self.is_silent = now, False
        self._heard_at = now
        return self._began_at

    def is_inside(self) -> bool:
        """Whether the caller is a task body of one of
        them, so that waiting for them would be in vain."""
        return any(worker.is_inside() for worker in self._workers)

    async def end_all(self) -> None:
        """Returns when all of them have ended. Workers that
        take too long are left to find the docket closed."""
        self._closed = True
        if not self._workers:
            return
        names = ", ".join(worker.name for worker in self._workers)
        logger.warning("the docket closes while a worker runs (%s): its tasks are handed back", names)
        ends = [asyncio.create_task(worker.end_run(at_once=True)) for worker in list(self._workers)]
        await _wait(ends)


async def _wait(ends: Sequence[asyncio.Task[None]]) -> None:
    """A cancel of the caller is put off: the workers hand back at once, and that is bounded."""
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
