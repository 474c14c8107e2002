"""Converts between datetimes, which users see, and milliseconds, which docket stores; and the clock
of the tasks of a docket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from weakref import WeakValueDictionary

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def to_ms(when: datetime) -> float:
    """A datetime as Unix milliseconds. A naive datetime is local time, as in Python."""
    # Round to whole microseconds, so that a datetime made
    # from milliseconds converts back to the same value.
    return round(when.timestamp() * 1_000_000) / 1000


def from_ms(ms: float) -> datetime:
    """The datetime of Unix milliseconds. Values outside the range of datetime become its first or
    last value. This includes `datetime.max`, which rounding pushes out of the range."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return LAST if ms > 0 else FIRST


def check_durations(owner: str, **durations: object) -> None:
    """Raises TypeError for a value that is not a timedelta. A plain number would be ambiguous."""
    for name, duration in durations.items():
        if not isinstance(duration, timedelta):
            raise TypeError(
                f"{owner}({name}={duration!r}): a duration is a timedelta, for instance timedelta(seconds=5)"
            )


def check_type(name: str, value: object, types: tuple[type, ...]) -> None:
    """Raises TypeError for a value that is neither None nor of one of these types."""
    if value is not None and not isinstance(value, types):
        raise TypeError(f"{name}={value!r}: it is a {' or a '.join(one.__name__ for one in types)}")


def duration_ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


def format_duration(seconds: float) -> str:
    """A duration as short text: `5ms`, `1.5s`, `3m`, `2h`."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < 0.1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 100:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    if seconds < 6000:
        return f"{seconds / 60:.0f}m"
    return f"{seconds / 3600:.0f}h"


class TaskClock:
    """The clock for due times. Leases and heartbeats always use real time."""

    def __init__(self) -> None:
        self._held_ms: int | None = None
        # Whether a test controls the time. It is an attribute,
        # not a property, because it is read for every task.
        self.is_frozen: bool = False
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
        self._held_ms, self._skip, self.is_frozen = ms, skip, True
        self.script_keys = (b"\0%d" % ms,)

    def release(self) -> None:
        self._held_ms = self._skip = None
        self.is_frozen = False
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
