"""Pages of the rate limits, cooldowns and debounces that are in effect."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from docket.storage.keys import bytes_text

from .ledger import Ledger


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A limit. `kind` is `rate`, `cooldown` or `debounce`; `runs` are keys and times (server ms),
    `waiters` keys, the times until which they wait, and functions."""

    kind: str
    name: str
    most: int
    ms: int
    ends_ms: float
    in_use: int
    waiting: int
    runs: list[tuple[str, float]]
    waiters: list[tuple[str, float, str]]


@dataclass(frozen=True, slots=True)
class WindowRows:
    rows: list[WindowRow]
    total: int


async def list_windows(ledger: Ledger, before: int, count: int, named: int) -> WindowRows:
    """The limits after the first `before` ones, `count` at most, with at most `named` runs and
    waiting tasks of each. What cannot be read is left out."""
    _, total, *found = await ledger.ask("list_windows", (before, count, named))
    rows: list[WindowRow] = []
    for i in range(0, len(found), 6):
        with contextlib.suppress(ValueError, TypeError):
            rows.append(_row(*found[i : i + 6]))
    return WindowRows(rows, total)


def _row(
    limit: bytes,
    ends: bytes,
    in_use: int,
    waiting: int,
    runs: list[tuple[bytes, bytes]],
    waiters: list[tuple[bytes, bytes, bytes]],
) -> WindowRow:
    most, ms, key = limit.split(b" ", 2)
    kind, _, name = bytes_text(key).partition(":=")
    begun = [(_key_of(submission), float(at)) for submission, at in runs]
    waits = [(bytes_text(one), float(until), bytes_text(function)) for one, until, function in waiters]
    return WindowRow(kind, name, int(most), int(ms), float(ends), in_use, waiting, begun, waits)


def _key_of(submission: bytes) -> str:
    """The name of a submission is its generation, its number, and the key."""
    return bytes_text(submission.split(b" ", 2)[2] if submission.count(b" ") >= 2 else submission)
