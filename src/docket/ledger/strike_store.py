"""The strikes in force, as they are stored. The store has the current rules, not their history."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from docket.codec.packing import pack_for_script, unpack_from_script
from docket.codec.proofs import new_secret, proven_body
from docket.storage.keys import Keys, text_bytes
from docket.storage.server import Server

logger: logging.Logger = logging.getLogger("docket.strikelist")

# A field of the hash and its rule. None removes the rule.
Change = tuple[str, bytes | None]

_VERSION = b"version"
_PAGE = 500
# A version is at most the number of microseconds since 1970, with years to spare.
_VERSION_DIGITS = 17


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


def _id(field: bytes) -> str:
    """Any bytes as text, so that every rule can be listed and removed."""
    return field.decode("utf-8", "surrogateescape")


def _field(id: str) -> bytes:
    return id.encode("utf-8", "surrogateescape")


def _number(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() and len(digits) <= _VERSION_DIGITS else None
