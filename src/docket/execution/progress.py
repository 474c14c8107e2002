"""How far a task has come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

from docket.model.times import from_ms

if TYPE_CHECKING:
    from .context import TaskHome


class ProgressEvent(TypedDict):
    """A step of a task's progress."""

    type: Literal["progress"]
    key: str
    current: int | None
    total: int
    message: str | None
    updated_at: str | None


class ExecutionProgress:
    """Progress of one task: written by its run, read by anybody.

    Writes of a run that was replaced, or lost to another worker, change nothing.
    """

    def __init__(self, docket: TaskHome, key: str, epoch: int = 0) -> None:
        self.docket = docket
        self.key = key
        self.epoch = epoch
        self.current: int | None = 0 if epoch else None
        self.total: int = 100
        self.message: str | None = None
        self.updated_at: datetime | None = None
        self.used = False

    @classmethod
    async def create(cls, docket: TaskHome, key: str) -> Self:
        """The progress of a task as it is written down."""
        progress = cls(docket, key)
        await progress.sync()
        return progress

    async def set_total(self, total: int) -> None:
        if total < 1:
            raise ValueError(f"a total of {total}: it must be at least 1")
        self.total = total
        await self._write()

    async def increment(self, amount: int = 1) -> None:
        if amount < 1:
            raise ValueError(f"an increment of {amount}: it must be at least 1")
        self.current = (self.current or 0) + amount
        await self._write()

    async def set_message(self, message: str | None) -> None:
        self.message = message
        await self._write()

    async def sync(self) -> None:
        """Reads the progress as it is written down, also after the task has ended."""
        look = await self.docket.ledger.look(self.key)
        stored = look.progress or (look.finished.progress if look.finished else None)
        self.apply(read_progress(stored) if stored else {})

    async def subscribe(self, ready: asyncio.Event | None = None) -> AsyncGenerator[ProgressEvent]:
        """The progress now, then every step."""
        async for event in self.docket.watch(self.key, ready):
            if event["type"] == "progress":
                yield event

    def apply(self, stored: dict[str, Any]) -> None:
        self.current = stored.get("current")
        self.total = stored.get("total", 100)
        self.message = stored.get("message")
        updated = stored.get("updated_at")
        self.updated_at = from_ms(updated) if updated is not None else None

    async def _write(self) -> None:
        self.used = True
        self.updated_at = self.docket.now()
        stored = json.dumps(
            {
                "type": "progress",
                "current": self.current,
                "total": self.total,
                "message": self.message,
                "updated_at": round(self.updated_at.timestamp() * 1000),
            }
        )
        await self.docket.write_progress(self.key, self.epoch, stored)


def read_progress(stored: bytes | str) -> dict[str, Any]:
    return json.loads(stored)


def progress_event(key: str, stored: dict[str, Any]) -> ProgressEvent:
    updated = stored.get("updated_at")
    return {
        "type": "progress",
        "key": key,
        "current": stored.get("current"),
        "total": stored.get("total", 100),
        "message": stored.get("message"),
        "updated_at": from_ms(updated).isoformat() if updated is not None else None,
    }
