"""Checks of what a cursor says. The server raises an error for a position that cannot be, and the
sender of such a cursor has to hear that it is wrong, not that the server is."""

from __future__ import annotations

import re

_LARGEST = 2**64 - 1
_NUMBER = re.compile(r"\d{1,20}", re.ASCII)


def is_scan_cursor(text: str) -> bool:
    """Whether a SCAN command takes it."""
    return _NUMBER.fullmatch(text) is not None and int(text) <= _LARGEST


def is_entry_id(text: str) -> bool:
    """Whether entries of a stream may come before it and after it."""
    first, dash, second = text.partition("-")
    if not dash or not is_scan_cursor(first) or not is_scan_cursor(second):
        return False
    return (0, 0) < (int(first), int(second)) < (_LARGEST, _LARGEST)
