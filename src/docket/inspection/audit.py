"""The changes that people made to a docket."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from docket.execution.context import DocketContext
from docket.ledger.audit import AuditRow
from docket.model.times import from_ms

from .filters import is_entry_id

# A page whose filter matches few entries ends after this many.
_MOST_READ = 2_000
_READ_AT_ONCE = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditEntry:
    """A change that somebody made.

    `via` is how: `web`, `api`, `cli` or `python`. `action` is the verb, such as `pause` or
    `dead.retry`; `about` is the key, the rule or the filter, in words; `count` how many tasks or
    letters it concerned, if that is known; `outcome` is `done`, or the error.
    """

    id: str
    at: datetime
    who: str
    via: str
    action: str
    about: str
    count: int | None
    outcome: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditPage:
    """Changes, the newest first, and the cursor of the next page; None at the end. `total` is the
    number of all changes that are kept."""

    entries: tuple[AuditEntry, ...]
    cursor: str | None
    total: int


async def read_audit(
    docket: DocketContext,
    *,
    cursor: str | None = None,
    size: int = 50,
    who: str | None = None,
    action: str | None = None,
) -> AuditPage:
    """A page of the changes, of all or of one person or action. Raises ValueError for a cursor that
    is not one."""
    if not 1 <= size <= 500:
        raise ValueError(f"size={size}: it must be from 1 to 500")
    if cursor is not None and not is_entry_id(cursor):
        raise ValueError(f"{cursor!r} is not a cursor: use the one of the page before")
    entries: list[AuditEntry] = []
    read, following, total = 0, cursor, 0
    filters = who is not None or action is not None
    while len(entries) < size and read < _MOST_READ:
        count = _READ_AT_ONCE if filters else size - len(entries)
        rows, total, following = await docket.ledger.audit.entries(following, count)
        read += count
        for row in rows:
            if who in (None, row.note.who) and action in (None, row.note.action):
                entries.append(_entry(row))
                if len(entries) == size and row is not rows[-1]:
                    return AuditPage(entries=tuple(entries), cursor=row.id, total=total)
        if following is None:
            break
    return AuditPage(entries=tuple(entries), cursor=following, total=total)


def _entry(row: AuditRow) -> AuditEntry:
    note = row.note
    return AuditEntry(
        id=row.id,
        at=from_ms(row.at_ms),
        who=note.who,
        via=note.via,
        action=note.action,
        about=note.about,
        count=note.count,
        outcome=note.outcome,
    )
