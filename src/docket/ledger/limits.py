"""The scripts that decide whether a run may begin now. They
use the server's clock, and the run's epoch fences them."""

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
    """The decision of a limit about a run.

    DELAY: the run is over, and the task is due again after `wait_ms`. DROP: the limit drops runs
    for another `wait_ms`; with `overtaken`, another submission runs instead. `taken` is what the
    run has taken from the limit, and may have to give back.
    """

    verdict: Verdict
    wait_ms: float
    taken: Taken | None = None
    overtaken: bool = False


class Limits:
    """The limits of one docket.

    The argument `taken` is what the run has taken from other
    limits. A script that delays or parks the run gives this back.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._keys = ledger.keys

    async def rate(
        self, key: str, epoch: int, limit: str, most: int, per_ms: int, *, drop: bool, taken: Sequence[Taken] = ()
    ) -> Decision:
        """Takes one of the `most` starts that a sliding window of `per_ms` allows. If none is left,
        it reserves a later one and delays the task until then."""
        log, waiters = text_bytes(self._keys.rate(limit)), text_bytes(self._keys.rate_waiters(limit))
        return await self._decide("rate_limit", key, epoch, taken, _RATE, log, waiters, most, per_ms, int(drop))

    async def cool_down(
        self, key: str, epoch: int, limit: str, window_ms: int, *, taken: Sequence[Taken] = ()
    ) -> Decision:
        """Opens a window and admits the run, if no window is open."""
        window = text_bytes(self._keys.cooldown(limit))
        return await self._decide("cooldown", key, epoch, taken, _COOLDOWN, window, window_ms)

    async def debounce(
        self, key: str, epoch: int, limit: str, settle_ms: int, *, latest: bool, taken: Sequence[Taken] = ()
    ) -> Decision:
        """Admits one run after no submission has arrived for `settle_ms`."""
        state = text_bytes(self._keys.debounce(limit))
        return await self._decide("debounce", key, epoch, taken, _DEBOUNCE, state, settle_ms, int(latest))

    async def acquire(
        self, key: str, epoch: int, limits: Sequence[tuple[str, int]], *, taken: Sequence[Taken] = ()
    ) -> tuple[Verdict, int]:
        """Takes a slot of each limit. DELAY: a limit is full, so the task is parked and this run is
        over. The number is the position of that limit, counted from 1."""
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
        """Sets the number of slots of those limits in a group that are in use, and wakes the parked
        tasks that now have a slot."""
        cursor = "0"
        while True:
            cursor = (await self._ledger.ask("set_limit", (cursor, text_bytes(group), most))).decode()
            if cursor == "0":
                return

    async def _decide(
        self, script: str, key: str, epoch: int, taken: Sequence[Taken], kind: int, counter: bytes, *details: Any
    ) -> Decision:
        fixed = (text_bytes(key), epoch, self._ledger.ttl_ms, taken)
        code, wait_ms, name = await self._ledger.ask(script, (*fixed, counter, *details))
        verdict = Verdict(code)
        if verdict is Verdict.ADMIT:
            return Decision(verdict, wait_ms, (kind, counter, name) if name else None)
        return Decision(verdict, wait_ms, overtaken=name == _OVERTAKEN)


def _limit_segment(name: str) -> bytes:
    """A limit's name as a part of key names and of a list with
    newlines between its items. It must not be empty there."""
    return text_bytes(segment(name).replace("\n", "%0A") or "%")
