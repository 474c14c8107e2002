"""Converts between datetimes, which users see, and milliseconds, which docket stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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
