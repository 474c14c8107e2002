"""The strikes in force, as they are written down: what is in effect, not how it came about."""

from __future__ import annotations

from collections.abc import Sequence

from docket.codec.packing import pack_for_script, unpack_from_script
from docket.storage.keys import Keys, text_bytes
from docket.storage.server import Server

# A field of the hash, and the rule in it; None takes the rule back.
Change = tuple[str, bytes | None]

_VERSION = b"version"
_PAGE = 500


class StrikeStore:
    """Reads and writes the rules of one docket; every change has a version and is published."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._key = text_bytes(keys.strikes)
        self.channel: bytes = keys.strike_channel

    async def write(self, changes: Sequence[Change]) -> tuple[int, int]:
        """The version of the change, and how many rules it touched."""
        listed = [(field, False if rule is None else rule) for field, rule in changes]
        version, touched = await self._server.run("strike", [self._key], self.channel, pack_for_script(listed))
        return version, touched

    async def read(self) -> tuple[int, dict[str, bytes]]:
        """Everything in force, page by page. Changes after
        the returned version may or may not be seen."""
        rules: dict[str, bytes] = {}
        version = int(await self._server.ask(self._key, "HGET", self._key, _VERSION) or 0)
        cursor = b"0"
        while True:
            cursor, page = await self._server.ask(self._key, "HSCAN", self._key, cursor, "COUNT", _PAGE)
            rules.update((f.decode(), rule) for f, rule in zip(page[::2], page[1::2], strict=True) if f != _VERSION)
            if cursor == b"0":
                return version, rules


def read_message(message: bytes) -> tuple[int, list[Change]]:
    """A published change: its version and what it changed."""
    version, _, changes = message.partition(b" ")
    listed = unpack_from_script(changes)
    return int(version), [(field.decode(), rule or None) for field, rule in listed]
