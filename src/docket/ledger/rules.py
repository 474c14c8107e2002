"""The rules of operators as they are stored: pauses (docs/design/pause.md) and strikes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from docket.codec.packing import pack_for_script, unpack_from_script
from docket.codec.proofs import new_secret, proven_body
from docket.storage.keys import Keys, bytes_text, text_bytes
from docket.storage.server import Server

from .calls import Area

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
logger: logging.Logger = logging.getLogger("docket.strikelist")
# A field of the hash and its rule. None removes the rule.
Change = tuple[str, bytes | None]
_VERSION = b"version"
_PAGE = 500
# A version is at most the number of microseconds since 1970, with years to spare.
_VERSION_DIGITS = 17


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


class StrikeStore:
    """Reads and writes the rules of one docket. Each change gets a version and is published."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._key = text_bytes(keys.strikes)
        self._root, self._channels = keys.root, text_bytes(keys.channels)
        # Proves the messages; None if the docket has none and the server refuses to store one.
        self._secret: bytes | None = None
        self.channel: bytes = keys.strike_channel

    async def write(self, changes: Sequence[Change]) -> tuple[int, int]:
        """Writes the changes. Returns the version and the number of rules that changed."""
        listed = [(_field(id), False if rule is None else rule) for id, rule in changes]
        version, changed = await self._server.run("strike", [self._root], self._channels, pack_for_script(listed))
        return version, changed

    async def read(self) -> tuple[int, dict[str, bytes]]:
        """The version and all rules in force. Changes
        after that version may or may not be included."""
        rules: dict[str, bytes] = {}
        version, self._secret = await self._server.run(
            "follow_strikes", [self._root], self._channels, pack_for_script((new_secret(),))
        )
        if version == -1:
            logger.error("the key of the strikes holds something else, so no strike applies: %r", self._key)
            return 0, rules
        cursor = b"0"
        while True:
            cursor, page = await self._server.ask(self._key, "HSCAN", self._key, cursor, "COUNT", _PAGE)
            rules.update((_id(f), rule) for f, rule in zip(page[::2], page[1::2], strict=True) if f != _VERSION)
            if cursor == b"0":
                return _number(version or b"0") or 0, rules

    def read_message(self, message: bytes) -> tuple[int, list[Change]] | None:
        """The version and the changes in a published message. None for a message that does not
        prove that a script of this docket sent it."""
        body = proven_body(self._secret, b"S", b"strike", b"", message)
        if body is None:
            return None
        number, _, changes = body.partition(b" ")
        version = _number(number)
        if version is None:
            return None
        try:
            return version, [(_id(field), rule or None) for field, rule in unpack_from_script(changes)]
        except (ValueError, TypeError, AttributeError):
            return None


class Pauses(Area):
    """The pauses of one docket: rules that hold matching tasks."""

    async def store(self, id: str, rule: bytes) -> StoredPause | None:
        """Stores a pause, or finds it in force. None if the docket has too many."""
        stored, since, held = await self._calls.run_script("pause", (text_bytes(id), rule, MOST_PAUSES, MOST_BYTES))
        return None if stored == -1 else StoredPause(id, rule, int(since), False, held)

    async def resume(self, id: str, most: int | None = None) -> int | None:
        """Begins to let the tasks of a pause go. Returns how
        many it held, or None if there is no such pause."""
        found, held = await self._calls.run_script("resume", (text_bytes(id), RELEASE_BATCH if most is None else most))
        return held if found else None

    async def release(self, id: str, most: int | None = None) -> Released:
        """Lets the next tasks of a pause go, if workers have received the last ones."""
        count = RELEASE_BATCH if most is None else most
        moved, left, front, stream = await self._calls.run_script("release", (text_bytes(id), count))
        return Released(moved, None if left < 0 else left, bool(front), bool(stream))

    async def read(self) -> StoredPauses:
        """All pauses, oldest first."""
        version, *rows = await self._calls.run_script("pauses", ())
        found = [stored_pause(bytes_text(id), value, held) for id, value, held in rows]
        return StoredPauses(version, sorted(found, key=lambda pause: (pause.epoch, pause.id)))


def function_rule(name: str) -> str:
    """The id of the pause of a function."""
    return _FUNCTION + name


def paused_function(id: str) -> str | None:
    """The function that a rule of this id is about, or None if it is about something else."""
    return id[len(_FUNCTION) :] if id.startswith(_FUNCTION) else None


def stored_pause(id: str, value: bytes, held: int) -> StoredPause:
    """A pause as scripts return it. Somebody else may have written the value: it must not stop the
    process that reads it."""
    head, _, rule = value.partition(b" ")
    digits = head[1:]
    since = int(digits) if digits.isdigit() and len(digits) <= 18 else 0
    return StoredPause(id, rule, since, head[:1] == _RESUMING, held)


def _id(field: bytes) -> str:
    """Any bytes as text, so that every rule can be listed and removed."""
    return field.decode("utf-8", "surrogateescape")


def _field(id: str) -> bytes:
    return id.encode("utf-8", "surrogateescape")


def _number(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() and len(digits) <= _VERSION_DIGITS else None
