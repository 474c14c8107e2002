"""The strikes in force, as they are written down: what is in effect, not how it came about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from docket.codec.packing import pack_for_script, unpack_from_script
from docket.storage.faults import SERVER_ERRORS
from docket.storage.keys import Keys, text_bytes
from docket.storage.server import Server

# A field of the hash, and the rule in it; None takes the rule back.
Change = tuple[str, bytes | None]

_VERSION = b"version"
_PAGE = 500


class StrikeBook:
    """Reads and writes the rules of one docket; every change has a version and is published."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._key = text_bytes(keys.strikes)
        self.channel = keys.strike_channel

    async def write(self, changes: Sequence[Change]) -> tuple[int, int]:
        """The version of the change, and how many rules it touched."""
        listed = [(field, False if rule is None else rule) for field, rule in changes]
        version, touched = await self._server.run("strike", [self._key], self.channel, pack_for_script(listed))
        return version, touched

    async def read(self) -> tuple[int, dict[str, bytes]]:
        """Everything in force, page by page. Changes after the returned version may or may not be seen."""
        client: Any = self._server.client
        rules: dict[str, bytes] = {}
        try:
            version = int(await client.hget(self._key, _VERSION) or 0)
            cursor = 0
            while True:
                cursor, page = await client.hscan(self._key, cursor, count=_PAGE)
                rules.update((field.decode(), rule) for field, rule in page.items() if field != _VERSION)
                if not cursor:
                    return version, rules
        except SERVER_ERRORS as error:
            raise self._server.explain(error) from error


def read_message(message: bytes) -> tuple[int, list[Change]]:
    """A published change: its version and what it changed."""
    version, _, changes = message.partition(b" ")
    listed = unpack_from_script(changes)
    return int(version), [(field.decode(), rule or None) for field, rule in listed]
