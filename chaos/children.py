"""Watches the children of the workers from outside. Nobody else sees how long a child outlives a
worker that was killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .histories import History
from .processes import Place

PROC = Path("/proc")
TICK_SECONDS = 0.1
# Children that are left after the last worker have this time. The rule allows them less.
LAST_SECONDS = 4.0


@dataclass
class _Seen:
    worker: str
    pid: int
    # The kernel's time of its start: another process may get the same number later.
    born: str
    alive_at: float


class ChildWatch:
    """Writes a `child gone` for each child that has ended. It needs Linux."""

    def __init__(self, places: Sequence[Place], history: History) -> None:
        self._places = places
        self._history = history
        self._seen: dict[int, _Seen] = {}

    async def watch(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(TICK_SECONDS)

    async def finish(self) -> None:
        """Waits for the children that are left after the last worker, and writes down those that
        do not end."""
        until = time.monotonic() + LAST_SECONDS
        self._look()
        while self._seen and time.monotonic() < until:
            await asyncio.sleep(TICK_SECONDS)
            self._look()
        for child in self._seen.values():
            self._note("child left", child)

    def _look(self) -> None:
        for place in self._places:
            if (worker := place.pid) is not None:
                for pid in _children_of(worker):
                    if pid not in self._seen and (born := _born(pid)) is not None:
                        self._seen[pid] = _Seen(place.process_name, pid, born, time.monotonic())
        for child in list(self._seen.values()):
            now = time.monotonic()
            if _born(child.pid) == child.born:
                child.alive_at = now
            else:
                del self._seen[child.pid]
                self._note("child gone", child)

    def _note(self, kind: str, child: _Seen) -> None:
        self._history.write(kind, worker=child.worker, pid=child.pid, alive_at=child.alive_at)


def _children_of(pid: int) -> list[int]:
    """The children that the main thread of a process has started."""
    try:
        return [int(child) for child in (PROC / str(pid) / "task" / str(pid) / "children").read_text().split()]
    except OSError:
        return []


def _born(pid: int) -> str | None:
    """When a process started, by the kernel's clock. None if it has ended, also if nobody has asked
    for its exit code yet."""
    try:
        # The name of the program, in parentheses, may contain spaces.
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
