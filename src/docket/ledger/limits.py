"""Whether a run may begin now, decided by scripts on the server's clock and fenced by the run's epoch."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from docket.model.states import ExecutionState
from docket.storage.keys import text_bytes

from .endings import CANCELLED_EVENT, CANCELLED_TAIL, Ending, ending_event
from .ledger import Ledger

_OVERTAKEN = "dropped: a debounce (another submission runs in its place)"
_OVERTAKEN_TAIL = Ending(error=_OVERTAKEN).pack()
_OVERTAKEN_EVENT = ending_event(ExecutionState.CANCELLED, "null", 0, _OVERTAKEN)


class Verdict(enum.IntEnum):
    LOST = 0
    GO = 1
    PUT_OFF = 2
    DROP = 3


@dataclass(slots=True)
class Decision:
    """What a limit says about a run.

    PUT_OFF: the run is over and the task comes back after `wait_ms`. DROP: `wait_ms` is how long that will be so.
    `receipt` names what the run has taken, for giving it back.
    """

    verdict: Verdict
    wait_ms: float
    receipt: bytes


class LimitBook:
    """The limits of one docket that are about time; those about slots are the ledger's `acquire`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._keys = ledger.keys

    async def rate(self, key: str, epoch: int, limit: str, most: int, per_ms: int, *, drop: bool) -> Decision:
        """Takes one of `most` places in a window of `per_ms` that slides; where none is free, one in the future."""
        places = (text_bytes(self._keys.rate(limit)), text_bytes(self._keys.rate_line(limit)))
        return await self._decide("rate", key, epoch, *places, most, per_ms, int(drop))

    async def give_back_rate(self, limit: str, receipt: bytes) -> None:
        await self._ledger.ask("give_back", (text_bytes(self._keys.rate(limit)), receipt))

    async def cool_down(self, key: str, epoch: int, limit: str, window_ms: int) -> Decision:
        """Opens a window if none is open."""
        return await self._decide("cooldown", key, epoch, text_bytes(self._keys.cooldown(limit)), window_ms)

    async def give_back_cooldown(self, limit: str, receipt: bytes) -> None:
        await self._ledger.ask("give_back", (text_bytes(self._keys.cooldown(limit)), receipt))

    async def debounce(self, key: str, epoch: int, limit: str, settle_ms: int, *, latest: bool) -> Decision:
        """Lets the one run through for which it has been quiet long enough."""
        state = text_bytes(self._keys.debounce(limit))
        overtaken = (_OVERTAKEN_TAIL, _OVERTAKEN_EVENT)
        return await self._decide("debounce", key, epoch, state, settle_ms, int(latest), *overtaken)

    async def keep_debounced(self, key: str, limit: str, receipt: bytes) -> None:
        """The task that was let through was put off by something else: it is let through again."""
        await self._ledger.ask("keep_debounced", (text_bytes(key), text_bytes(self._keys.debounce(limit)), receipt))

    async def declare(self, group: str, most: int) -> None:
        """Sets how many slots the limits of a group have, as far as they are in use, and wakes those for whom there
        is one now."""
        cursor = "0"
        while True:
            cursor = (await self._ledger.ask("declare", (cursor, text_bytes(group), most))).decode()
            if cursor == "0":
                return

    async def _decide(self, script: str, key: str, epoch: int, *particulars: Any) -> Decision:
        fixed = (text_bytes(key), epoch, self._ledger.ttl_ms, CANCELLED_TAIL, CANCELLED_EVENT)
        verdict, wait_ms, receipt = await self._ledger.ask(script, (*fixed, *particulars))
        return Decision(Verdict(verdict), wait_ms, receipt)
