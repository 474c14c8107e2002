"""Durations (`250ms`, `5s`, `1h30m`, `1:30`) and
amounts of memory (`512MiB`) as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(us|ms|s|m|h|d|w)\s*")
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")


def read_duration(text: str) -> timedelta:
    """Reads a duration. A number without a unit is in seconds, `1:30` is
    minutes and seconds. Raises ValueError if the text is not a duration."""
    stripped = text.strip().lower()
    try:
        found = next((length for read in (_by_units, _by_clock, _bare) if (length := read(stripped)) is not None), None)
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None
    if found is None:
        raise ValueError(f"{text!r} is not a duration: write 250ms, 5s, 10m, 2h or 1:30")
    return found


def write_duration(length: timedelta) -> str:
    """Writes a duration in the largest unit of which it is a multiple, as in `15m`."""
    units = [unit for unit, one in _UNITS.items() if unit != "w" and length % one == timedelta(0)]
    return f"{length // _UNITS[units[-1]]}{units[-1]}" if length else "0s"


def _by_units(text: str) -> timedelta | None:
    if not text or _PART.sub("", text):
        return None
    return sum((float(number) * _UNITS[unit] for number, unit in _PART.findall(text)), timedelta(0))


def _by_clock(text: str) -> timedelta | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = match.groups()
    return timedelta(hours=int(hours or 0), minutes=int(minutes), seconds=float(seconds))


def _bare(text: str) -> timedelta | None:
    return timedelta(seconds=float(text)) if re.fullmatch(r"\d+(\.\d+)?|\.\d+", text) else None


MIB = 1024**2
_SIZE_UNITS = {
    "": 1,
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}IB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def read_size(size: str | int) -> int:
    """The number of bytes. Raises ValueError or TypeError if it cannot be read."""
    if isinstance(size, bool) or not isinstance(size, str | int):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise TypeError(f"{size!r} is not a size: write '512MiB', or a number of bytes")
    if isinstance(size, int):
        return size
    found = _SIZE.fullmatch(size)
    unit = _SIZE_UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise ValueError(f"{size!r} is not a size: write '512MiB', '2GB', or a number of bytes")
    return int(float(found[1]) * unit)


def show_size(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"
