"""When a task was added. Its record has no such time, but other marks tell it."""

from __future__ import annotations

import re
from datetime import datetime

from docket.model.times import from_ms
from docket.storage.records import TaskRecord

# A key that docket has made up begins with the time of the producer's clock (model/task_keys.py).
_GENERATED = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# How far the clocks of producers may be from the server's clock, and how late an entry may come
# after the script has asked for the time.
_CLOCKS_US, _ENTRY_US = 60_000_000, 10_000
# The number of a submission is the time of the first one, in microseconds, without its upper bits.
_CYCLE_US = 2**32


def added_at(key: str, task: TaskRecord) -> datetime | None:
    """When the task was added, by the server's clock; None if that is not known.

    The record has the lower bits of the time (`submission`); it repeats every 71 minutes. A key
    that docket made up, or the entry of a task that was ready at once, says in which of them. A
    task with a key of its own that was scheduled for later has neither.
    """
    generated = _GENERATED.fullmatch(key)
    if generated is not None:
        found = _near(int(generated[1] + generated[2], 16) * 1000, task.submission, _CLOCKS_US)
        if found is not None:
            return found
    return _near(int(task.entry_ms * 1000), task.submission, _ENTRY_US) if task.entry_ms else None


def _near(about_us: int, submission: int, most_us: int) -> datetime | None:
    """The time of that submission that is nearest to another time, if it is near enough."""
    off = (submission - about_us + _CYCLE_US // 2) % _CYCLE_US - _CYCLE_US // 2
    return from_ms((about_us + off) / 1000) if abs(off) <= most_us else None
