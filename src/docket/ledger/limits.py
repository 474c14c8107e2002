"""Limits: the scripts that decide whether a run may begin now, by the server's clock and fenced by
the run's epoch, and the limits in use."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from docket.storage.keys import bytes_text, segment, text_bytes

from .calls import Area
from .values import Taken

_RATE, _COOLDOWN, _DEBOUNCE = 1, 2, 3
_OVERTAKEN = b"overtaken"
# A task that came from the front stream waits before all others (lua/acquire.lua).
_FROM_FRONT = 2.0**51


class Verdict(enum.IntEnum):
    LOST = 0
    ADMIT = 1
    DELAY = 2
    DROP = 3


@dataclass(slots=True)
class Decision:
    """The decision of a limit about a run.

    DELAY: the run is over, and the task is due again after `wait_ms`. DROP: the limit drops runs
    for another `wait_ms`; with `overtaken`, another submission runs instead. `taken` is what the
    run has taken from the limit, and may have to give back.
    """

    verdict: Verdict
    wait_ms: float
    taken: Taken | None = None
    overtaken: bool = False


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


class Limits(Area):
    """The limits of one docket.

    The argument `taken` is what the run has taken from other
    limits. A script that delays or parks the run gives this back.
    """

    async def rate(
        self, key: str, epoch: int, limit: str, most: int, per_ms: int, *, drop: bool, taken: Sequence[Taken] = ()
    ) -> Decision:
        """Takes one of the `most` starts that a sliding window of `per_ms` allows. If none is left,
        it reserves a later one and delays the task until then."""
        log, waiters = text_bytes(self._calls.keys.rate(limit)), text_bytes(self._calls.keys.rate_waiters(limit))
        return await self._decide("rate_limit", key, epoch, taken, _RATE, log, waiters, most, per_ms, int(drop))

    async def cool_down(
        self, key: str, epoch: int, limit: str, window_ms: int, *, taken: Sequence[Taken] = ()
    ) -> Decision:
        """Opens a window and admits the run, if no window is open."""
        window = text_bytes(self._calls.keys.cooldown(limit))
        return await self._decide("cooldown", key, epoch, taken, _COOLDOWN, window, window_ms)

    async def debounce(
        self, key: str, epoch: int, limit: str, settle_ms: int, *, latest: bool, taken: Sequence[Taken] = ()
    ) -> Decision:
        """Admits one run after no submission has arrived for `settle_ms`."""
        state = text_bytes(self._calls.keys.debounce(limit))
        return await self._decide("debounce", key, epoch, taken, _DEBOUNCE, state, settle_ms, int(latest))

    async def acquire(
        self, key: str, epoch: int, limits: Sequence[tuple[str, int]], *, taken: Sequence[Taken] = ()
    ) -> tuple[Verdict, int]:
        """Takes a slot of each limit. DELAY: a limit is full, so the task is parked and this run is
        over. The number is the position of that limit, counted from 1."""
        code, full = await self._calls.run_script(
            "acquire",
            (
                text_bytes(key),
                epoch,
                [(_limit_segment(name), most) for name, most in limits],
                self._calls.ttl_ms,
                taken,
            ),
        )
        return Verdict(code), full

    async def declare(self, group: str, most: int) -> None:
        """Sets the number of slots of those limits in a group that are in use, and wakes the parked
        tasks that now have a slot."""
        cursor = "0"
        while True:
            cursor = (await self._calls.run_script("set_limit", (cursor, text_bytes(group), most))).decode()
            if cursor == "0":
                return

    async def _decide(
        self, script: str, key: str, epoch: int, taken: Sequence[Taken], kind: int, counter: bytes, *details: Any
    ) -> Decision:
        fixed = (text_bytes(key), epoch, self._calls.ttl_ms, taken)
        code, wait_ms, name = await self._calls.run_script(script, (*fixed, counter, *details))
        verdict = Verdict(code)
        if verdict is Verdict.ADMIT:
            return Decision(verdict, wait_ms, (kind, counter, name) if name else None)
        return Decision(verdict, wait_ms, overtaken=name == _OVERTAKEN)

    async def in_use(self, cursor: bytes | None, count: int, named: int) -> LimitRows:
        """About `count` limits, with at most `named` holders and waiters of each."""
        following, total, *found = await self._calls.run_script("list_limits", (cursor or b"0", count, named))
        rows = [_limit(*found[i : i + 6]) for i in range(0, len(found), 6)]
        return LimitRows(rows, total, None if following == b"0" else following)

    async def windows(self, before: int, count: int, named: int) -> WindowRows:
        """The limits after the first `before` ones, `count` at most, with at most `named` runs and
        waiting tasks of each. What cannot be read is left out."""
        _, total, *found = await self._calls.run_script("list_windows", (before, count, named))
        rows: list[WindowRow] = []
        for i in range(0, len(found), 6):
            with contextlib.suppress(ValueError, TypeError):
                rows.append(_window(*found[i : i + 6]))
        return WindowRows(rows, total)


def _limit_segment(name: str) -> bytes:
    """A limit's name as a part of key names and of a list with
    newlines between its items. It must not be empty there."""
    return text_bytes(segment(name).replace("\n", "%0A") or "%")


def _limit(
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


def _window(
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
