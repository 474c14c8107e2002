"""Keys for tasks that are scheduled without a key."""

from __future__ import annotations

import os
import time

# The variant of a UUID occupies two bits of this digit.
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_latest = (0, "")


def new_key() -> str:
    """A new UUIDv7. Keys sort by the time of their creation."""
    global _latest
    ms = time.time_ns() // 1_000_000
    latest, beginning = _latest
    if ms != latest:
        # Many keys are created within a millisecond, so format their common part once.
        text = f"{ms:012x}"
        beginning = f"{text[:8]}-{text[8:]}-7"
        _latest = ms, beginning
    drawn = os.urandom(10).hex()
    return f"{beginning}{drawn[:3]}-{_VARIANTS[drawn[3]]}{drawn[4:7]}-{drawn[7:19]}"
