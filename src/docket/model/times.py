"""Datetimes at the surface, milliseconds inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def to_ms(when: datetime) -> float:
    """A moment as Unix milliseconds. A naive datetime is taken as local time, as Python does."""
    # Through whole microseconds: a moment that came from milliseconds must not end up a hair later.
    return round(when.timestamp() * 1_000_000) / 1000


def from_ms(ms: float) -> datetime:
    """The moment; one beyond the calendar is its last (also `datetime.max` itself, which does not
    survive the rounding)."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError):
        return LAST if ms > 0 else FIRST


def check_durations(owner: str, **durations: object) -> None:
    """Raises TypeError for a number, of which nobody knows whether it means seconds."""
    for name, duration in durations.items():
        if not isinstance(duration, timedelta):
            raise TypeError(
                f"{owner}({name}={duration!r}): a duration is a timedelta, for instance timedelta(seconds=5)"
            )


def duration_ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


def format_duration(seconds: float) -> str:
    """A duration for people, in at most six characters or so: `5ms`, `1.5s`, `3m`, `2h`."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < 0.1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 100:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    if seconds < 6000:
        return f"{seconds / 60:.0f}m"
    return f"{seconds / 3600:.0f}h"
