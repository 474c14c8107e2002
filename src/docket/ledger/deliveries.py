"""The answer of a claim."""

from __future__ import annotations

from typing import Any

from docket.storage.keys import bytes_text

from .values import Delivery, Entry, SuspectNotes

# The answer has these for each claimed task, after two numbers of its own (lua/parts/claiming.lua).
CLAIM_ROW = ("key", "record", "epoch")
_FIRST_ROW, _ROW = 2, len(CLAIM_ROW)


def read_deliveries(reply: list[Any], notes: SuspectNotes | None) -> list[Delivery] | None:
    if reply[0] == -1:
        return None
    if (len(reply) - _FIRST_ROW) % _ROW:
        # Suspects were met.
        refused, alone, from_front, id, key, alone_ms = reply.pop()
        if notes is not None:
            notes.refused, notes.alone, notes.alone_seconds = bool(refused), alone or None, alone_ms / 1000
            notes.reserved = Entry(bool(from_front), id.decode(), key) if id else None
    now = reply[0]
    return [
        Delivery(bytes_text(reply[i]), reply[i + 1], reply[i + 2], now) for i in range(_FIRST_ROW, len(reply), _ROW)
    ]
