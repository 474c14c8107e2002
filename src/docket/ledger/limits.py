"""Whether a run may begin now, decided by scripts on
the server's clock and fenced by the run's epoch."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from docket.storage.keys import segment, text_bytes

from .ledger import Ledger
from .values import Taken

_RATE, _COOLDOWN, _DEBOUNCE = 1, 2, 3
_OVERTAKEN = b"overtaken"


class Verdict(enum.IntEnum):
    LOST = 0
    ADMIT = 1
    DELAY = 2
    DROP = 3


@dataclass(slots=True)
class Decision:
    """What a limit says about a run.

    DELAY: the run is over and the task comes back after `wait_ms`. DROP: `wait_ms` is how long
    that will be so, and `overtaken` that another submission runs in its counter. `taken` is what
    the run has taken, for giving it back.
    """

    verdict: Verdict
    wait_ms: float
    taken: Taken | None = None
    overtaken: bool = False


class Limits:
    """The limits of one docket.

    `taken` is what the run has taken of other limits: the script that puts it off gives that back.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._keys = ledger.keys

    async def rate(
        self, key: str, epoch: int, limit: str, most: int, per_ms: int, *, drop: bool, taken: Sequence[Taken] = ()
    ) -> Decision:
        """Takes one of `most` places in a window of `per_ms`
        that slides; where none is free, one in the future."""
        log, line = text_bytes(self._keys.rate(limit)), text_bytes(self._keys.rate_waiters(limit))
        return await self._decide("rate_limit", key, epoch, taken, _RATE, log, line, most, per_ms, int(drop))

    async def cool_down(
        self, key: str, epoch: int, limit: str, window_ms: int, *, taken: Sequence[Taken] = ()
    ) -> Decision:
        """Opens a window if none is open."""
        window = text_bytes(self._keys.cooldown(limit))
        return await self._decide("cooldown", key, epoch, taken, _COOLDOWN, window, window_ms)

    async def debounce(
        self, key: str, epoch: int, limit: str, settle_ms: int, *, latest: bool, taken: Sequence[Taken] = ()
    ) -> Decision:
        """Lets the one run through for which it has been quiet long enough."""
        state = text_bytes(self._keys.debounce(limit))
        return await self._decide("debounce", key, epoch, taken, _DEBOUNCE, state, settle_ms, int(latest))

    async def acquire(
        self, key: str, epoch: int, limits: Sequence[tuple[str, int]], *, taken: Sequence[Taken] = ()
    ) -> tuple[Verdict, int]:
        """Takes a slot of each limit. DELAY: the task is parked and this run is over; the number
        says which limit was full, counted from 1."""
        code, full = await self._ledger.ask(
            "acquire",
            (
                text_bytes(key),
                epoch,
                [(_limit_segment(name), most) for name, most in limits],
                self._ledger.ttl_ms,
                taken,
            ),
        )
        return Verdict(code), full

    async def declare(self, group: str, most: int) -> None:
        """Sets how many slots the limits of a group have, as far as they are in use, and wakes
        those for whom there is one now."""
        cursor = "0"
        while True:
            cursor = (await self._ledger.ask("set_limit", (cursor, text_bytes(group), most))).decode()
            if cursor == "0":
                return

    async def _decide(
        self, script: str, key: str, epoch: int, taken: Sequence[Taken], kind: int, counter: bytes, *particulars: Any
    ) -> Decision:
        fixed = (text_bytes(key), epoch, self._ledger.ttl_ms, taken)
        code, wait_ms, name = await self._ledger.ask(script, (*fixed, counter, *particulars))
        verdict = Verdict(code)
        if verdict is Verdict.ADMIT:
            return Decision(verdict, wait_ms, (kind, counter, name) if name else None)
        return Decision(verdict, wait_ms, overtaken=name == _OVERTAKEN)


def _limit_segment(name: str) -> bytes:
    """A limit's name is part of key names and of a list
    joined by newlines; it must not be empty there."""
    return text_bytes(segment(name).replace("\n", "%0A") or "%")
