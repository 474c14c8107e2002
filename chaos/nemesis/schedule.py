"""When which fault comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from random import Random

from .arena import Arena
from .base import FaultKind

MEAN_GAP_SECONDS = 1.5


class Nemesis:
    """Inflicts faults, one after the other and some at the same time. Every kind comes once in each
    round, or as often as it says."""

    def __init__(self, arena: Arena, faults: Sequence[FaultKind], gap_seconds: float = MEAN_GAP_SECONDS) -> None:
        self._arena = arena
        self._faults = faults
        self._gap_seconds = gap_seconds

    async def run(self, seconds: float) -> None:
        """Returns when the last fault is healed."""
        until = time.monotonic() + seconds
        under_way: list[asyncio.Task[None]] = []
        for fault in rounds(self._faults, self._arena.random):
            if time.monotonic() >= until:
                break
            under_way.append(asyncio.create_task(fault.inflict(self._arena)))
            gap = self._arena.random.uniform(0.2, 2.0) * self._gap_seconds
            await asyncio.sleep(max(min(gap, until - time.monotonic()), 0.0))
        await asyncio.sleep(max(until - time.monotonic(), 0.0))
        for task in under_way:
            await task


def rounds(faults: Sequence[FaultKind], random: Random) -> Iterator[FaultKind]:
    """All faults in a random order, then all of them in another one, and so on."""
    while faults:
        bag = [fault for fault in faults for _ in range(fault.times)]
        random.shuffle(bag)
        yield from bag
