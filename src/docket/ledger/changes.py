"""Changes of operators to single tasks and to batches of them (docs/design/web.md)."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from docket.storage.keys import text_bytes

from .ledger import Ledger

# Tasks that one script call cancels.
CANCELLED_AT_ONCE = 100


class Rescheduled(enum.IntEnum):
    """What became of a task that was to get another due time."""

    NOT_FOUND = 0
    MOVED = 1
    NOT_SCHEDULED = 2
    CHANGED = 3


class Cancelled(enum.IntEnum):
    """What became of a task that was to be cancelled."""

    SKIPPED = 0
    CANCELLED = 1
    REQUESTED = 2


async def reschedule(
    ledger: Ledger, key: str, due_ms: float, seen_ms: float | None = None
) -> tuple[Rescheduled, float]:
    """Moves a task of the schedule to another due time, 0 for now, if its due time is the one that
    the caller has seen. Returns its due time."""
    seen = False if seen_ms is None else seen_ms
    code, due = await ledger.ask("reschedule", (text_bytes(key), due_ms, seen))
    return Rescheduled(code), float(due)


async def cancel_many(ledger: Ledger, tasks: Sequence[tuple[str, int, int]], *, with_running: bool) -> list[Cancelled]:
    """Cancels tasks, given by key, generation and submission, unless they are other ones by now."""
    found: list[Cancelled] = []
    for first in range(0, len(tasks), CANCELLED_AT_ONCE):
        rows = [
            (text_bytes(key), generation, submission)
            for key, generation, submission in tasks[first : first + CANCELLED_AT_ONCE]
        ]
        found += [Cancelled(code) for code in await ledger.ask("cancel_many", (ledger.ttl_ms, int(with_running), rows))]
    return found
