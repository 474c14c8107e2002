"""Histories: what the processes of a chaos run saw, one file per process. The events of a child
belong to its worker.

An event is one line of JSON and one `write`, so a process that is killed leaves whole events
behind. The times are of the machine's monotonic clock, which all processes share. `wall` is the
machine's own wall clock, also in processes whose clock is shifted.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SUFFIX = ".history"
# Between the name of a worker and the number of its child, in the name of the child's file.
CHILD = "~"


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` happened in a process, at `at` seconds on the monotonic clock."""

    at: float
    wall: float
    process: str
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.data.get(name, default)


def real_wall() -> float:
    """The machine's wall clock in seconds, which a shifted clock does not change."""
    return time.clock_gettime(time.CLOCK_REALTIME)


class History:
    """Appends the events of one process to its file. Threads may share it."""

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self._file = os.open(folder / f"{process}{SUFFIX}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: str, **data: Any) -> None:
        line = json.dumps([time.monotonic(), real_wall(), kind, data], separators=(",", ":"), default=str)
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read_histories(folder: Path) -> list[Event]:
    """The events of all processes, in the order of their times."""
    events = [event for file in sorted(folder.glob(f"*{SUFFIX}")) for event in _read(file)]
    events.sort(key=lambda event: event.at)
    return events


def _read(file: Path) -> Iterator[Event]:
    process = file.name.removesuffix(SUFFIX).partition(CHILD)[0]
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            # A process may die in the middle of its last write.
            if not line.endswith("\n"):
                return
            at, wall, kind, data = json.loads(line)
            yield Event(at, wall, process, kind, data)
