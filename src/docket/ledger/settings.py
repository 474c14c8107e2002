"""The settings that the processes of one docket declare, so that workers can compare them
(docs/design/settings.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from docket.storage.keys import bytes_text, text_bytes

from .ledger import Ledger

PRODUCER, WORKER = "producer", "worker"
LIFETIME_MS = 15 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Declaration:
    """The settings of one process."""

    role: str
    process: str
    settings: dict[str, Any]


async def declare_settings(ledger: Ledger, own: Declaration) -> list[Declaration]:
    """Declares the settings of this process and returns the declarations of all processes."""
    text = f"{own.role} {json.dumps(own.settings, sort_keys=True, separators=(',', ':'))}"
    reply = await ledger.ask("settings", (text_bytes(text), text_bytes(own.process), LIFETIME_MS))
    return [found for row in reply if (found := _read(bytes_text(row[0]), bytes_text(row[1]))) is not None]


def _read(declaration: str, process: str) -> Declaration | None:
    """None for a declaration of another release that this release cannot read."""
    role, _, text = declaration.partition(" ")
    try:
        settings = json.loads(text)
    except ValueError:
        return None
    return Declaration(role, process, cast("dict[str, Any]", settings)) if isinstance(settings, dict) else None
