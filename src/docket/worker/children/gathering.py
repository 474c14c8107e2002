"""Lets the ends of short runs gather in the pipes of the children, so that the worker wakes up once
for several of them (docs/design/processes.md, "Several ends at a time")."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .child_process import ChildProcess

# The end of a run waits at most this long, and at most for this share of the run's time-out, which
# goes on meanwhile.
GATHER_SECONDS = 0.005
TIMEOUT_SHARE = 0.01
# Shorter than this is not worth a timer, which has this resolution anyway.
LEAST_SECONDS = 0.001


class Gathering:
    """Reads the pipes of all children that have enough to do at the same time, every few
    milliseconds. The event loop reads those of all others at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # When each of them was read.
        self._children: dict[ChildProcess, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def has_read(self, child: ChildProcess) -> None:
        """The event loop has read what the child has sent."""
        now = self._loop.time()
        if child.runs.enough_until - now >= LEAST_SECONDS and _may_wait(child):
            child.pause_reading()
            self._wait(child, now)

    def _wait(self, child: ChildProcess, now: float) -> None:
        """The next runs may be on their way, because those that have ended have made room."""
        self._children[child] = now
        self._look_at(max(self._until(child), now + LEAST_SECONDS))

    def _until(self, child: ChildProcess) -> float:
        """By then the child has come to its last run, or its first end has waited long enough."""
        return min(child.runs.enough_until, self._children[child] + _longest_wait(child))

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """Reads all, unless each of them has got more to do meanwhile."""
        self._timer = None
        now, until = self._loop.time(), min(map(self._until, self._children))
        if until - now >= LEAST_SECONDS:
            self._look_at(until)
            return
        children, self._children = list(self._children), {}
        have_sent = [child.read() for child in children]
        for child, has_sent in zip(children, have_sent, strict=True):
            # If no run has ended by now, the present one may last for long.
            if has_sent and _may_wait(child):
                self._wait(child, now)
            else:
                child.resume_reading()


def _may_wait(child: ChildProcess) -> bool:
    """The pipe has not much room, so the rest of a large message is read as it comes."""
    runs = child.runs
    if not child.is_alive or child.is_amid_message or not len(runs):
        return False
    return runs.usual_seconds <= GATHER_SECONDS and _longest_wait(child) >= LEAST_SECONDS


def _longest_wait(child: ChildProcess) -> float:
    present = child.runs.present
    return GATHER_SECONDS if present is None else min(GATHER_SECONDS, present.time_limit * TIMEOUT_SHARE)
