"""The progress of a task."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from contextlib import aclosing
from datetime import datetime
from typing import Any, Literal, Self, TypedDict

from docket.errors import TRANSIENT, TaskNotFound
from docket.ledger import ProgressChange, Unwritten
from docket.model.bounds import check_message
from docket.model.times import from_ms

from .context import DocketContext
from .events import read_event
from .functions import SyncCaller, awaitable_or_done

logger: logging.Logger = logging.getLogger("docket.execution")

_MOST = 2**53


class ProgressEvent(TypedDict):
    """A change of a task's progress."""

    type: Literal["progress"]
    key: str
    current: int | None
    total: int
    message: str | None
    updated_at: str | None


class ExecutionProgress:
    """The progress of one task. The run and any other
    process can write it, and everyone can read it.

    Several handles can write at the same time: each call changes only its own fields and publishes
    one event. A run that was replaced, or lost to another worker, changes nothing. Other handles
    can also write while the task waits, and raise TaskNotFound if the task has ended. An outage of
    the server raises no error: the change is sent with the next write.

    Async functions await the methods that write. In a plain function the call itself writes, and
    raises CancelledError if the run was given up.
    """

    def __init__(self, docket: DocketContext, key: str, epoch: int = 0) -> None:
        self.docket = docket
        self.key = key
        self.epoch = epoch
        self.current: int | None = 0 if epoch else None
        self.total: int = 100
        self.message: str | None = None
        self.updated_at: datetime | None = None
        self.used: bool = False
        self._unsent: ProgressChange | None = None
        # Of the plain function whose run this is. Threads that the function starts do not have its
        # context.
        self.caller: SyncCaller | None = None

    @classmethod
    async def create(cls, docket: DocketContext, key: str) -> Self:
        """The stored progress of a task."""
        progress = cls(docket, key)
        await progress.sync()
        return progress

    # Each of these writes the change when it is awaited. In a plain function, the call itself does.

    def set_total(self, total: int) -> Awaitable[None]:
        """Sets the total; it has to be at least 1."""
        return self.update(total=total)

    def increment(self, amount: int = 1) -> Awaitable[None]:
        """Adds to the stored value, whichever process has written it."""
        return self._now_or_later(self._increment(amount))

    def set(self, current: int) -> Awaitable[None]:
        """Sets the current value, higher or lower than before."""
        return self.update(current=current)

    def set_message(self, message: str | None) -> Awaitable[None]:
        """Sets the message. None removes it."""
        return self._now_or_later(self._set_message(message))

    def update(
        self, *, current: int | None = None, total: int | None = None, message: str | None = None
    ) -> Awaitable[None]:
        """Sets several fields at once and publishes one
        event. Fields that are not given do not change."""
        return self._now_or_later(self._update(current, total, message))

    def _now_or_later(self, coroutine: Coroutine[Any, Any, None]) -> Awaitable[None]:
        return awaitable_or_done(coroutine, self.caller)

    async def _increment(self, amount: int) -> None:
        _check("an increment", amount, 1)
        await self._change(ProgressChange(self.key, self.epoch, add=amount))

    async def _set_message(self, message: str | None) -> None:
        check_message(message or "")
        await self._change(ProgressChange(self.key, self.epoch, message=json.dumps(message)))

    async def _update(self, current: int | None, total: int | None, message: str | None) -> None:
        if current is None and total is None and message is None:
            raise TypeError("update() needs a current, a total or a message")
        if current is not None:
            _check("a current", current, 0)
        if total is not None:
            _check("a total", total, 1)
        check_message(message or "")
        text = json.dumps(message) if message is not None else None
        await self._change(ProgressChange(self.key, self.epoch, current=current, total=total, message=text))

    async def sync(self) -> None:
        """Reads the stored progress, also after the task has ended."""
        status = await self.docket.ledger.tasks.get(self.key)
        stored = status.progress or (status.finished.progress if status.finished else None)
        self.apply(read_progress(stored) if stored else {})

    async def subscribe(self, ready: asyncio.Event | None = None) -> AsyncGenerator[ProgressEvent]:
        """Yields the current progress, then every change until the task has ended. Raises
        TaskNotFound if no task has the key."""
        async with aclosing(self.docket.watch(self.key, ready)) as events:
            async for event in events:
                if event["type"] == "progress":
                    yield event

    def apply(self, stored: dict[str, Any]) -> None:
        """Takes over what the server has stored."""
        self.current = stored.get("current")
        self.total = stored.get("total", 100)
        self.message = stored.get("message")
        updated = stored.get("updated_at")
        self.updated_at = from_ms(updated) if updated is not None else None

    async def write(self, change: ProgressChange) -> None:
        """Writes a change that was made in a child process."""
        await self._change(change)

    async def _change(self, change: ProgressChange) -> None:
        self.used = True
        unsent, self._unsent = self._unsent, None
        combined = change if unsent is None else unsent.then(change)
        try:
            answer = await self.docket.write_progress(combined)
        except TRANSIENT as error:
            # A task must not fail because its progress could not be written.
            is_logged = unsent is not None or self.docket.ledger.server.outages.is_on
            level = logging.DEBUG if is_logged else logging.WARNING
            logger.log(level, "progress of task %r was not written: %s", self.key, error)
            if not getattr(error, "maybe_stored", False):
                self._unsent = combined if self._unsent is None else self._unsent.then(combined)
            self._apply_locally(change)
            return
        if answer is Unwritten.NOT_FOUND:
            raise TaskNotFound(
                f"progress of task {self.key!r}: there is no such task, or it has ended; nothing was written"
            )
        if isinstance(answer, Unwritten):
            self._apply_locally(change)
        else:
            self.apply(read_progress(answer))

    def _apply_locally(self, change: ProgressChange) -> None:
        """Applies a change that was not stored to this handle."""
        current = self.current if change.current is None else change.current
        if change.add is not None:
            current = (current or 0) + change.add
        total = self.total if change.total is None else change.total
        message = self.message if change.message is None else json.loads(change.message)
        now = round(self.docket.now().timestamp() * 1000)
        self.apply({"current": current, "total": total, "message": message, "updated_at": now})


def _check(what: str, number: object, least: int) -> None:
    """Raises an error for a number that the server's scripts
    cannot store exactly: they use floats, exact up to 2⁵³."""
    if not isinstance(number, int | float):
        raise TypeError(f"{what} of {number!r}: it must be a number")
    if not least <= number <= _MOST:
        raise ValueError(f"{what} of {number}: it must be at least {least} and at most {_MOST}")


def read_progress(stored: bytes) -> dict[str, Any]:
    """Stored progress that is not one counts as none."""
    event = read_event(stored)
    return event if event is not None and event["type"] == "progress" else {}


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
