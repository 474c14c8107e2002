"""A log of runs that tasks of a test keep."""

import asyncio
import time
from collections import Counter, defaultdict
from typing import Any

from .waiting import eventually


class RunLog:
    """Tasks write here when they begin and end. The log
    counts how many run at once, in total or for a group."""

    def __init__(self) -> None:
        self.began: list[Any] = []
        self.times: list[float] = []
        self.ended: list[Any] = []
        self.at_once: Counter[Any] = Counter()
        self.most_at_once: Counter[Any] = Counter()
        self._gates: defaultdict[Any, asyncio.Event] = defaultdict(asyncio.Event)

    def begin(self, who: Any, group: Any = None) -> None:
        self.began.append(who)
        self.times.append(time.monotonic())
        self.at_once[group] += 1
        self.most_at_once[group] = max(self.most_at_once[group], self.at_once[group])

    def end(self, who: Any, group: Any = None) -> None:
        self.at_once[group] -= 1
        self.ended.append(who)

    async def hold(self, who: Any, group: Any = None) -> None:
        """Goes on until it is let go."""
        self.begin(who, group)
        try:
            await self._gates[who].wait()
        finally:
            self.end(who, group)

    async def nap(self, who: Any, group: Any = None, seconds: float = 0.01) -> None:
        self.begin(who, group)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.end(who, group)

    def let_go(self, *who: Any) -> None:
        for name in who:
            self._gates[name].set()

    async def has(self, *who: Any) -> None:
        """Waits until these have begun."""
        await eventually(lambda: set(who) <= set(self.began), f"{who} have begun", seen=lambda: self.began)

    @property
    def now(self) -> set[Any]:
        left = Counter(self.began)
        left.subtract(self.ended)
        return {who for who, count in left.items() if count > 0}
