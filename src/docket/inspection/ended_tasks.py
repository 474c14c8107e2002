"""Pages of finished tasks, with their errors. Nothing of them is decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from docket.codec.call_headers import shown_arguments
from docket.errors import Undecodable
from docket.ledger import Ending, Ledger, read_ending
from docket.ledger.queries import MOST_CALLS, MOST_KEYS, FinishedRow
from docket.model.states import ExecutionState
from docket.model.times import from_ms

_AT_ONCE = 50


@dataclass(frozen=True)
class EndedTask:
    """A finished task whose record has not expired."""

    key: str
    function: str
    state: ExecutionState
    due: datetime
    attempt: int
    arguments: dict[str, str] | None
    arguments_bytes: int
    started_at: datetime | None
    completed_at: datetime
    worker: str | None
    error: str | None


async def find_ended(
    ledger: Ledger,
    states: Sequence[ExecutionState],
    cursor: bytes | None,
    size: int,
    function: str | None,
    key_prefix: str | None,
    calls: int = MOST_CALLS,
    at_once: int = MOST_KEYS,
) -> tuple[list[EndedTask], bytes | None]:
    """A page of the finished tasks in these states, those that ended last first, and the cursor of
    the next page. Finished tasks have no index: the pages themselves are in no order. `calls` is
    the most script calls for this page, and `at_once` how many keys each of them reads."""
    wanted = [state for state in states if state.finished]
    only = wanted[0] if len(wanted) == 1 else None
    prefix = key_prefix or ""
    page = await ledger.queries.finished(
        cursor, size, state=only, function=function, key_prefix=prefix, calls=calls, at_once=at_once
    )
    rows = [row for row in page.rows if row.head.state in wanted]
    rows.sort(key=lambda row: row.head.completed_ms, reverse=True)
    ended: list[EndedTask] = []
    for first in range(0, len(rows), _AT_ONCE):
        ended += await asyncio.gather(*(_with_ending(ledger, row) for row in rows[first : first + _AT_ONCE]))
    return ended, page.cursor


async def _with_ending(ledger: Ledger, row: FinishedRow) -> EndedTask:
    """The page has only the heads of the records. The record may have expired since."""
    ending, size, shown = Ending(), 0, None
    try:
        record = (await ledger.tasks.get(row.key)).finished
        if record is not None:
            ending, size = read_ending(record.tail), record.task.call_size
            shown = shown_arguments(record.task.call) if record.task.reference is None else None
    except Undecodable:
        pass
    head = row.head
    return EndedTask(
        row.key,
        head.task.function_name,
        head.state,
        from_ms(head.task.due_ms),
        head.task.attempt,
        shown,
        size,
        from_ms(head.started_ms) if head.started_ms else None,
        from_ms(head.completed_ms),
        ending.worker,
        ending.error,
    )
