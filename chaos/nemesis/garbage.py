"""Entries, records and messages that docket did not write."""

from __future__ import annotations

import asyncio

from chaos.settings import Settings

from .arena import Arena
from .base import FaultKind

OVERSIZED = 2_000_000
PREFIX = Settings.docket
KEY = "garbage"


class Garbage(FaultKind):
    """A stream entry of another program, an entry without a task, a task that cannot be read, and
    messages that are not ours."""

    name = "garbage"
    size = 40

    async def inflict(self, arena: Arena) -> None:
        async with arena.server_lock, arena.fault(self.name, ""):
            # Certainly not a record, of any release: its numbers are not numbers.
            data = b"\xff" * 40 + arena.random.randbytes(self.size)
            key = f"{KEY}-{arena.random.randrange(2**32)}"
            stream, tasks = f"{PREFIX}:stream", f"{PREFIX}:tasks"
            channels = f"docket/0/{len(PREFIX)}:{PREFIX}/"
            commands: list[tuple[str | bytes, ...]] = [
                ("XADD", stream, "*", "field", data),
                ("XADD", stream, "*", "k", f"{key}-nothing"),
                ("HSET", tasks, key, data),
                ("XADD", stream, "*", "k", key),
                ("PUBLISH", f"{channels}task/{key}", data),
                ("PUBLISH", f"{channels}wake/", data),
                ("PUBLISH", f"{channels}strikes/", data),
            ]
            for command in commands:
                await asyncio.to_thread(arena.server.run, *command)


class Oversized(Garbage):
    name = "oversized garbage"
    size = OVERSIZED
