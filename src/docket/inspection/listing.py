"""Pages of a docket's tasks: first the running tasks, then the ready tasks, then the scheduled
tasks; on request also those that have ended."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from docket.ledger import Ledger
from docket.ledger.queries import Query, TaskRow, find
from docket.model.states import ExecutionState

from .ended_tasks import EndedTask, find_ended

# Finished tasks are one more stage.
STAGES = (ExecutionState.RUNNING, ExecutionState.QUEUED, ExecutionState.SCHEDULED)
# A filter that matches few tasks may read very many. After this time the page has the tasks so far.
PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class Cursor:
    """The end of a page: its stage, and the position in that stage."""

    stage: int = 0
    within: bytes | None = None

    def text(self) -> str:
        return base64.urlsafe_b64encode(bytes([self.stage]) + (self.within or b"")).decode().rstrip("=")


def read_cursor(text: str) -> Cursor:
    """Raises ValueError if the text is not a cursor."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    if not raw or raw[0] > len(STAGES):
        raise ValueError(f"{text!r} is not a cursor: copy it from the end of the previous page")
    return Cursor(raw[0], raw[1:] or None)


@dataclass
class Listing:
    """About as many tasks as requested, and the cursor of
    the next page. The cursor is None on the last page."""

    rows: list[TaskRow] = field(default_factory=list[TaskRow])
    ended: list[EndedTask] = field(default_factory=list[EndedTask])
    following: Cursor | None = None


def arguments_in_words(row: TaskRow) -> str:
    """The `Logged` arguments on one line, or an empty text. Nothing is decoded."""
    return ", ".join(f"{name}={text}" for name, text in (row.shown_arguments or {}).items())


async def list_tasks(
    ledger: Ledger,
    states: Sequence[ExecutionState],
    limit: int | None,
    *,
    function: str | None = None,
    key_prefix: str | None = None,
    after: Cursor | None = None,
) -> Listing:
    """A page of the tasks in these states, or all of them without a limit."""
    cursor = after or Cursor()
    listing = Listing()
    deadline = time.monotonic() + PATIENCE_SECONDS
    stages = len(STAGES) + (1 if any(state.finished for state in states) else 0)
    while cursor.stage < stages:
        size = max((limit or 500) - len(listing.rows) - len(listing.ended), 1)
        within = None
        if cursor.stage == len(STAGES):
            ended, within = await find_ended(ledger, states, cursor.within, size, function, key_prefix)
            listing.ended += ended
        elif (state := STAGES[cursor.stage]) in states:
            page = await find(ledger, Query(state, function, key_prefix), cursor.within, size)
            listing.rows += sorted(page.rows, key=lambda row: row.due_ms)
            within = page.cursor
        cursor = Cursor(cursor.stage, within) if within is not None else Cursor(cursor.stage + 1)
        found = len(listing.rows) + len(listing.ended)
        if limit is not None and (found >= limit or time.monotonic() > deadline):
            listing.following = cursor if cursor.stage < stages else None
            break
    return listing
