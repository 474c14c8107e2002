"""The audit: who changed what (docs/design/web.md)."""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import socket
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from docket.codec.packing import pack, unpack
from docket.errors import DocketError
from docket.model.times import duration_ms
from docket.storage.keys import bytes_text, text_bytes

from .calls import Area

logger: logging.Logger = logging.getLogger("docket.audit")
MOST_ENTRIES = 10_000
KEPT = timedelta(days=90)
_LONGEST_TEXT = 500
_actor: ContextVar[Actor | None] = ContextVar("docket_actor", default=None)
# Set inside of a change that is written down as a whole.
_inside: ContextVar[bool] = ContextVar("docket_audited", default=False)
_CANCELS = {0: "not found", 1: "done", 2: "requested"}


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of changes, and the way that they came: `web`, `api`, `cli` or `python`."""

    who: str
    via: str


@dataclass(slots=True)
class AuditNote:
    """A change. `about` is the key, the rule or the filter, in words; `count` how many tasks or
    letters it concerned, if that is known; `outcome` is `done` or the error."""

    who: str
    via: str
    action: str
    about: str = ""
    count: int | None = None
    outcome: str = "done"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A change as it is stored."""

    id: str
    at_ms: float
    note: AuditNote


class Audit(Area):
    """The audit of one docket."""

    @asynccontextmanager
    async def change(self, action: str, about: str = "") -> AsyncGenerator[AuditNote]:
        """Writes down the change that the block makes, also if it fails: the block may set `count`
        and `outcome` of the note. Changes inside of the block are part of this one."""
        actor = _actor.get() or process_actor()
        note = AuditNote(actor.who, actor.via, action, about)
        if _inside.get():
            yield note
            return
        token = _inside.set(True)
        try:
            yield note
        except BaseException as error:
            note.outcome = f"{type(error).__name__}: {error}"
            raise
        finally:
            _inside.reset(token)
            await self.write_safely(note)

    async def note_cancel(self, key: str, became: int) -> None:
        """Writes down a cancel, if somebody has said who
        acts: programs cancel tasks, too, and often."""
        actor = _actor.get()
        if actor is not None and not _inside.get():
            count = int(became > 0)
            await self.write_safely(AuditNote(actor.who, actor.via, "cancel", key, count, _CANCELS[became]))

    async def write_safely(self, note: AuditNote) -> None:
        """Writes a note. The change has been made, so an error here only goes to the log."""
        try:
            await self.write(note)
        except DocketError as error:
            logger.warning("the change %r by %s was not written down: %s", note.action, note.who, error)

    async def write(self, note: AuditNote) -> None:
        texts = (note.who, note.via, note.action, note.about, note.outcome)
        entry = pack((1, *(text_bytes(text[:_LONGEST_TEXT]) for text in texts), note.count))
        await self._calls.run_script("audit", (entry, MOST_ENTRIES, duration_ms(KEPT)))

    async def entries(self, after: str | None, count: int) -> tuple[list[AuditRow], int, str | None]:
        """Entries, the newest first; how many there are; and the id after which the next page
        begins, or None at the end. Entries that this release cannot read are left out."""
        total, *found = await self._calls.run_script("list_audit", (text_bytes(after or ""), count))
        rows: list[AuditRow] = []
        last: str | None = None
        for i in range(0, len(found), 3):
            last = bytes_text(found[i])
            with contextlib.suppress(ValueError, TypeError, IndexError, AttributeError):
                rows.append(AuditRow(last, float(found[i + 1]), _read(found[i + 2])))
        return rows, total, last if len(found) // 3 == count else None


@contextmanager
def acting_as(who: str, via: str) -> Generator[None]:
    """Changes within the context are written down in this name."""
    token = _actor.set(Actor(who, via))
    try:
        yield
    finally:
        _actor.reset(token)


@cache
def process_actor() -> Actor:
    """The user and the host of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return Actor(f"{user}@{socket.gethostname()}", "python")


def in_words(filter: Mapping[str, Any]) -> str:
    """A filter for the audit: its fields and values."""
    return " ".join(f"{name}={_word(value)}" for name, value in filter.items() if value is not None) or "everything"


def _word(value: Any) -> str:
    name = getattr(value, "id", None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else str(value)[:_LONGEST_TEXT]


def _read(data: bytes) -> AuditNote:
    entry: Any = unpack(data)
    who, via, action, about, outcome = (bytes_text(text) for text in entry[1:6])
    count = entry[6]
    return AuditNote(who, via, action, about, count if isinstance(count, int) else None, outcome)
