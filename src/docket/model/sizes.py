"""Amounts of memory: `"512MiB"`, or a number of bytes."""

from __future__ import annotations

import re

MIB = 1024**2
_UNITS = {
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
    unit = _UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise ValueError(f"{size!r} is not a size: write '512MiB', '2GB', or a number of bytes")
    return int(float(found[1]) * unit)


def show_size(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"
