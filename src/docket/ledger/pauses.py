"""Pauses: rules that hold matching tasks (docs/design/pause.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from docket.storage.keys import bytes_text, text_bytes

from .ledger import Ledger

# The most pauses of a docket. Each claim reads the rules of its functions, and workers read all.
MOST_PAUSES = 1_000
# The most bytes of all pauses together: every worker reads them after each change.
MOST_BYTES = 256 * 1024
# Tasks that `resume` lets go at once. The scripts also bound the bytes.
RELEASE_BATCH = 200

# The ids of rules that scripts look up (lua/parts/holds.lua).
WHOLE_DOCKET = "*"
_FUNCTION = "="
_RESUMING = b"r"


def function_rule(name: str) -> str:
    """The id of the pause of a function."""
    return _FUNCTION + name


def paused_function(id: str) -> str | None:
    """The function that a rule of this id is about, or None if it is about something else."""
    return id[len(_FUNCTION) :] if id.startswith(_FUNCTION) else None


@dataclass(frozen=True, slots=True)
class StoredPause:
    """A pause as it is stored: its rule, the epoch at which it was stored (microseconds of the
    server's clock), whether its tasks already go on, and how many it still holds."""

    id: str
    rule: bytes
    epoch: int
    is_resuming: bool
    held: int


class StoredPauses(NamedTuple):
    """All pauses, and the version of those that compare arguments."""

    version: bytes
    pauses: list[StoredPause]


class Released(NamedTuple):
    """The result of letting tasks go: how many went, how many are still held (None: the pause is
    not being resumed), and whether the streams have undelivered entries."""

    moved: int
    left: int | None
    front_waits: bool
    stream_waits: bool


async def store_pause(ledger: Ledger, id: str, rule: bytes) -> StoredPause | None:
    """Stores a pause, or finds it in force. None if the docket has too many."""
    stored, since, held = await ledger.ask("pause", (text_bytes(id), rule, MOST_PAUSES, MOST_BYTES))
    return None if stored == -1 else StoredPause(id, rule, int(since), False, held)


async def begin_resume(ledger: Ledger, id: str, most: int | None = None) -> int | None:
    """Begins to let the tasks of a pause go. Returns how many it held, or None if there is no such
    pause."""
    found, held = await ledger.ask("resume", (text_bytes(id), RELEASE_BATCH if most is None else most))
    return held if found else None


async def release(ledger: Ledger, id: str, most: int | None = None) -> Released:
    """Lets the next tasks of a pause go, if workers have received the last ones."""
    count = RELEASE_BATCH if most is None else most
    moved, left, front, stream = await ledger.ask("release", (text_bytes(id), count))
    return Released(moved, None if left < 0 else left, bool(front), bool(stream))


async def read_pauses(ledger: Ledger) -> StoredPauses:
    """All pauses, oldest first."""
    version, *rows = await ledger.ask("pauses", ())
    found = [stored_pause(bytes_text(id), value, held) for id, value, held in rows]
    return StoredPauses(version, sorted(found, key=lambda pause: (pause.epoch, pause.id)))


def stored_pause(id: str, value: bytes, held: int) -> StoredPause:
    """A pause as scripts return it. Somebody else may have written the value: it must not stop the
    process that reads it."""
    head, _, rule = value.partition(b" ")
    digits = head[1:]
    since = int(digits) if digits.isdigit() and len(digits) <= 18 else 0
    return StoredPause(id, rule, since, head[:1] == _RESUMING, held)
