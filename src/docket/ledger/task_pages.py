"""Pages of unfinished tasks, source by source, in the order in which they run."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from docket.storage.keys import bytes_text, segment, text_bytes
from docket.storage.records import RunRecord, TaskRecord, read_run, read_task

from .ledger import Ledger


class Source(enum.IntEnum):
    """Where unfinished tasks are listed. lua/find_tasks.lua has the same numbers."""

    RUNNING = 0
    FRONT = 1
    STREAM = 2
    PARKED = 3
    UNKNOWN_FUNCTION = 4
    HELD = 5
    SCHEDULED = 6


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """What a task has to have. `argument` is a part of the texts of its `Logged` arguments.
    `due_before_ms` is exclusive."""

    function: str | None = None
    key_prefix: str | None = None
    key_part: str | None = None
    argument: str | None = None
    due_from_ms: float | None = None
    due_before_ms: float | None = None
    worker: str | None = None

    def row(self) -> list[Any]:
        """The query in the script's format."""
        texts = (self.function, self.key_prefix, self.key_part, self.argument)
        times = (self.due_from_ms, self.due_before_ms)
        worker = False if self.worker is None else text_bytes(segment(self.worker))
        return [
            *(False if text is None else text_bytes(text) for text in texts),
            *(False if time is None else time for time in times),
            worker,
        ]


@dataclass(frozen=True, slots=True)
class FoundTask:
    """An unfinished task without its arguments. `note` is the progress of a running task, the rule
    that holds a task, or the limits that it waits for."""

    key: str
    task: TaskRecord
    call_size: int
    run: RunRecord | None
    headers: bytes | None
    note: bytes | None


@dataclass(frozen=True, slots=True)
class FoundPage:
    """Some tasks of one source, how many were read, and where to go on; None at the end."""

    tasks: list[FoundTask]
    examined: int
    cursor: bytes | None


async def find_tasks(
    ledger: Ledger, source: Source, query: TaskQuery, cursor: bytes | None, most: int, most_read: int
) -> FoundPage:
    """Reads at most `most_read` tasks of a source. If the source has no order, it may find more
    than `most`."""
    following, examined, *rows = await ledger.ask(
        "find_tasks", (int(source), cursor or b"", most, most_read, query.row())
    )
    found = [
        FoundTask(
            bytes_text(rows[i]),
            read_task(rows[i + 1]),
            rows[i + 2],
            read_run(rows[i + 3]) if rows[i + 3] else None,
            rows[i + 4] or None,
            rows[i + 5] or None,
        )
        for i in range(0, len(rows), 6)
    ]
    return FoundPage(found, examined, following or None)
