"""The strikes in force, as they are stored. The store has the current rules, not their history."""

from __future__ import annotations

from collections.abc import Sequence

from docket.codec.packing import pack_for_script, unpack_from_script
from docket.storage.keys import Keys, text_bytes
from docket.storage.server import Server

# A field of the hash and its rule. None removes the rule.
Change = tuple[str, bytes | None]

_VERSION = b"version"
_PAGE = 500


class StrikeStore:
    """Reads and writes the rules of one docket. Each change gets a version and is published."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._key = text_bytes(keys.strikes)
        self.channel: bytes = keys.strike_channel

    async def write(self, changes: Sequence[Change]) -> tuple[int, int]:
        """Writes the changes. Returns the version and the number of rules that changed."""
        listed = [(field, False if rule is None else rule) for field, rule in changes]
        version, changed = await self._server.run("strike", [self._key], self.channel, pack_for_script(listed))
        return version, changed

    async def read(self) -> tuple[int, dict[str, bytes]]:
        """The version and all rules in force. Changes
        after that version may or may not be included."""
        rules: dict[str, bytes] = {}
        version = int(await self._server.ask(self._key, "HGET", self._key, _VERSION) or 0)
        cursor = b"0"
        while True:
            cursor, page = await self._server.ask(self._key, "HSCAN", self._key, cursor, "COUNT", _PAGE)
            rules.update((f.decode(), rule) for f, rule in zip(page[::2], page[1::2], strict=True) if f != _VERSION)
            if cursor == b"0":
                return version, rules


def read_message(message: bytes) -> tuple[int, list[Change]]:
    """The version and the changes in a published message."""
    version, _, changes = message.partition(b" ")
    listed = unpack_from_script(changes)
    return int(version), [(field.decode(), rule or None) for field, rule in listed]
