"""The body of every task: it marks its own number and the time in a file that the harness shares.

A mark takes well under a microsecond and no system call, so the figures show the task system. Each
task marks its own number, so lost and repeated runs are visible.
"""

from __future__ import annotations

import mmap
import os
import time
from array import array
from pathlib import Path

BYTES_PER_TASK = 8 + 8 + 1


class Marks:
    """When each task began and ended (monotonic nanoseconds,
    the same clock in all processes) and how often it ran."""

    def __init__(self, path: str | Path) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        view = memoryview(self._map)
        self.size = len(view) // BYTES_PER_TASK
        self.began = view[: 8 * self.size].cast("q")
        self.ended = view[8 * self.size : 16 * self.size].cast("q")
        self.runs = view[16 * self.size :]

    @classmethod
    def create(cls, path: Path, tasks: int) -> Marks:
        """A file with room for tasks 0 … tasks-1, none of which has run."""
        with path.open("wb") as file:
            file.truncate(tasks * BYTES_PER_TASK)
        return cls(path)

    def mark(self, number: int) -> None:
        """A whole task that does nothing else."""
        self.began[number] = self.ended[number] = time.monotonic_ns()
        self.runs[number] += 1

    def begin(self, number: int) -> None:
        self.began[number] = time.monotonic_ns()

    def end(self, number: int) -> None:
        self.ended[number] = time.monotonic_ns()
        self.runs[number] += 1

    def compute(self, number: int, seconds: float) -> None:
        """A whole task that needs so much CPU time."""
        self.begin(number)
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        self.end(number)

    def done(self, first: int, count: int) -> int:
        """The number of these tasks that have run."""
        return count - bytes(self.runs[first : first + count]).count(0)

    def repeated(self, first: int, count: int) -> int:
        """The number of these tasks that have run more than once."""
        runs = bytes(self.runs[first : first + count])
        return count - runs.count(0) - runs.count(1)

    def span(self, first: int, count: int) -> tuple[int, int]:
        """When the first of these tasks began and the last that has ended did."""
        began = array("q", bytes(self.began[first : first + count].cast("B")))
        ended = array("q", bytes(self.ended[first : first + count].cast("B")))
        return min(filter(None, began), default=0), max(ended, default=0)

    def later_half_rate(self, first: int, count: int) -> float:
        """Ends a second among the later half of these tasks, so
        that whoever started late is not held against them."""
        ended = sorted(filter(None, array("q", bytes(self.ended[first : first + count].cast("B")))))
        later = ended[len(ended) // 2 :]
        return (len(later) - 1) / (later[-1] - later[0]) * 1e9 if len(later) > 1 and later[-1] > later[0] else 0.0

    def rate_since(self, first: int, count: int, since_ns: int) -> float:
        """Ends a second among those of these tasks that ended after a time."""
        ended = [end for end in array("q", bytes(self.ended[first : first + count].cast("B"))) if end > since_ns]
        return (len(ended) - 1) / (max(ended) - since_ns) * 1e9 if len(ended) > 1 else 0.0


def shared_marks() -> Marks:
    """The marks of the measurement that this process is part of."""
    return Marks(os.environ["BENCH_MARKS"])
