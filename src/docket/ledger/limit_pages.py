"""Pages of the concurrency limits that are in use."""

from __future__ import annotations

from dataclasses import dataclass

from docket.storage.keys import bytes_text

from .ledger import Ledger

# A task that came from the front stream waits before all others (lua/acquire.lua).
_FROM_FRONT = 2.0**51


@dataclass(frozen=True, slots=True)
class WaiterRow:
    """A task that waits for a slot, and when it began to wait (server ms)."""

    key: str
    since_ms: float
    function: str


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit. Its holders are runs, by epoch, and tasks for which a slot is reserved, by key."""

    name: str
    most: int
    in_use: int
    waiting: int
    epochs: list[int]
    reserved_for: list[str]
    waiters: list[WaiterRow]


@dataclass(frozen=True, slots=True)
class LimitRows:
    rows: list[LimitRow]
    total: int
    cursor: bytes | None


async def list_limits(ledger: Ledger, cursor: bytes | None, count: int, named: int) -> LimitRows:
    """About `count` limits, with at most `named` holders and waiters of each."""
    following, total, *found = await ledger.ask("list_limits", (cursor or b"0", count, named))
    rows = [_row(*found[i : i + 6]) for i in range(0, len(found), 6)]
    return LimitRows(rows, total, None if following == b"0" else following)


def _row(
    name: bytes, most: int, in_use: int, waiting: int, holders: list[bytes], waiters: list[tuple[bytes, bytes, bytes]]
) -> LimitRow:
    epochs = [int(holder[1:]) for holder in holders if holder[:1] == b"r" and holder[1:].isdigit()]
    reserved = [bytes_text(holder[1:]) for holder in holders if holder[:1] == b"w"]
    named = [
        WaiterRow(bytes_text(key), _waiting_since(float(position)), bytes_text(function))
        for key, position, function in waiters
    ]
    return LimitRow(bytes_text(name), most, in_use, waiting, sorted(epochs), reserved, named)


def _waiting_since(position: float) -> float:
    """The position is the epoch of the run that met the full limit: the server's microseconds."""
    return (position + _FROM_FRONT if position < 0 else position) / 1000
