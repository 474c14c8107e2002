"""Pages of a docket's tasks: what runs first, then what is ready, then what waits for its time."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from docket.ledger import Ledger
from docket.ledger.queries import Query, TaskRow, find
from docket.model.states import ExecutionState

STAGES = (ExecutionState.RUNNING, ExecutionState.QUEUED, ExecutionState.SCHEDULED)
# A filter that matches little may look at a great many tasks: after this long it shows what it has.
PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class Place:
    """Where a page ended: in which stage, and where there."""

    stage: int = 0
    cursor: bytes | None = None

    def text(self) -> str:
        return base64.urlsafe_b64encode(bytes([self.stage]) + (self.cursor or b"")).decode().rstrip("=")


def read_place(text: str) -> Place:
    """ValueError if it is none."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    if not raw or raw[0] >= len(STAGES):
        raise ValueError(f"{text!r} is not where a page ended: copy it from the end of the page before")
    return Place(raw[0], raw[1:] or None)


@dataclass
class Listing:
    """About as many tasks as asked for, and where the next page begins; None at the end."""

    rows: list[TaskRow] = field(default_factory=list[TaskRow])
    following: Place | None = None


async def list_tasks(
    ledger: Ledger,
    states: Sequence[ExecutionState],
    limit: int | None,
    *,
    function: str | None = None,
    key_prefix: str | None = None,
    after: Place | None = None,
) -> Listing:
    """A page of the tasks in these states; all of them without a limit."""
    place = after or Place()
    listing = Listing()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while place.stage < len(STAGES):
        state = STAGES[place.stage]
        cursor = None
        if state in states:
            query = Query(state, function, key_prefix)
            page = await find(ledger, query, place.cursor, max((limit or 500) - len(listing.rows), 1))
            listing.rows += sorted(page.rows, key=lambda row: row.due_ms)
            cursor = page.cursor
        place = Place(place.stage, cursor) if cursor is not None else Place(place.stage + 1)
        if limit is not None and (len(listing.rows) >= limit or time.monotonic() > deadline):
            listing.following = place if place.stage < len(STAGES) else None
            break
    return listing
