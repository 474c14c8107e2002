"""Durations for people."""

from __future__ import annotations


def format_duration(seconds: float) -> str:
    """A duration in at most six characters or so: `5ms`, `1.5s`, `3m`, `2h`."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < 0.1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 100:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    if seconds < 6000:
        return f"{seconds / 60:.0f}m"
    return f"{seconds / 3600:.0f}h"
