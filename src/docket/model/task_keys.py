"""The keys of tasks: the longest one, and new keys for tasks that are scheduled without a key."""

from __future__ import annotations

import os
import time

from .bounds import check_size

KEY_BYTES = 1_024
# A character has at most four bytes, so shorter keys need not be encoded.
_SHORT = KEY_BYTES // 4

# The variant of a UUID occupies two bits of this digit.
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_latest = (0, "")
# The random ends of the next keys. One call of the system draws many of them.
_ends: list[str] = []
_ENDS_PER_DRAW = 256
_DIGITS = 20


def check_key(key: str) -> None:
    if len(key) > _SHORT:
        check_size("the key", key, KEY_BYTES)


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
    while True:
        try:
            # A single step, so that no two threads get the same end.
            return beginning + _ends.pop()
        except IndexError:
            _draw()


# The first digits of a key and their hyphen. They change once in 65 seconds.
BEGINNING_SIZE = 9
END_SIZE = 12


def key_end(key: str) -> bytes:
    """The bytes of a generated key that follow its beginning."""
    return bytes.fromhex(key[BEGINNING_SIZE:].replace("-", ""))


def printed_end(end: bytes) -> str:
    """The text of these bytes."""
    digits = end.hex()
    return f"{digits[:4]}-{digits[4:8]}-{digits[8:12]}-{digits[12:]}"


def _draw() -> None:
    drawn = os.urandom(_ENDS_PER_DRAW * _DIGITS // 2).hex()
    digits = [drawn[at : at + _DIGITS] for at in range(0, len(drawn), _DIGITS)]
    _ends.extend(f"{d[:3]}-{_VARIANTS[d[3]]}{d[4:7]}-{d[7:19]}" for d in digits)


# A child process must not use the same ends as its parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ends.clear)
