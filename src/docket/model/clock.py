"""The clock for due times: real time, or a time that a test sets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from weakref import WeakValueDictionary

from .times import from_ms


class TaskClock:
    """The clock for due times. Leases and heartbeats always use real time."""

    def __init__(self) -> None:
        self._held_ms: int | None = None
        # Whether a test controls the time. It is an attribute,
        # not a property, because it is read for every task.
        self.is_held: bool = False
        self._skip: Callable[[], Awaitable[bool]] | None = None
        # An additional key for every script, which passes the
        # held time. Empty while the clock shows real time.
        self.script_keys: tuple[bytes, ...] = ()

    def now_ms(self) -> float:
        return time.time() * 1000 if self._held_ms is None else float(self._held_ms)

    def now(self) -> datetime:
        return datetime.now(UTC) if self._held_ms is None else from_ms(self._held_ms)

    def hold(self, ms: int, skip: Callable[[], Awaitable[bool]]) -> None:
        """Stops the clock at a time. `skip` moves the clock to the next due time and returns
        whether there was one."""
        self._held_ms, self._skip, self.is_held = ms, skip, True
        self.script_keys = (b"\0%d" % ms,)

    def release(self) -> None:
        self._held_ms = self._skip = None
        self.is_held = False
        self.script_keys = ()

    async def idle(self, seconds: float) -> None:
        """Waits for some seconds of real time, or moves a held clock to the next due time."""
        if self._skip is None or not await self._skip():
            await asyncio.sleep(seconds)


_by_name: WeakValueDictionary[str, TaskClock] = WeakValueDictionary()


def shared_clock(name: str) -> TaskClock:
    """The clock of all dockets of this process on one `memory://` name."""
    clock = _by_name.get(name)
    if clock is None:
        clock = _by_name[name] = TaskClock()
    return clock
