"""Tasks that are claimed a moment before there is a slot for them.

Between the end of one task and the start of the next lies a round trip to the server, which short
tasks feel: with fifty tasks that end together, slots would stand empty for several milliseconds of
every fifty. So a worker whose slots turn over quickly takes as many tasks ahead as will find a slot
within that time. None waits for long: if no slot becomes free, they are handed back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from .runs import Run
from .slots import Slots

# For the slots that become free within this time,
# at the rate of late, something may be taken ahead.
HORIZON_SECONDS = 0.01
RATE_SECONDS = 0.05
MOST = 20
# One slot in so many.
SHARE = 4
# So long they wait while no slot is given back at all; and so long at most.
LONGEST_WAIT = 0.05
MUCH_TOO_LONG = 0.5

# Whether a run could be begun: one that was cancelled meanwhile needs no slot.
Begin = Callable[[Run], bool]


class Prefetcher:
    """The line for slots, in the order in which the server gave them out."""

    def __init__(
        self, slots: Slots, is_lapsed: Callable[[], bool], begin: Begin, requeue: Callable[[Run], None]
    ) -> None:
        self._slots = slots
        self._is_lapsed = is_lapsed
        self._begin = begin
        self._requeue = requeue
        self._line: deque[tuple[float, Run]] = deque()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._seen = self._quiet_looks = 0
        self._rate = 0.0
        self._measured_at, self._measured = self._loop.time(), 0
        slots.pass_on = self._start_next

    def room(self) -> int:
        """How many more may be taken."""
        most = min(int(self._current_rate() * HORIZON_SECONDS), self._slots.count // SHARE, MOST)
        return max(most - len(self._line), 0)

    def add(self, run: Run) -> None:
        self._line.append((self._loop.time(), run))
        if self._timer is None:
            self._seen, self._quiet_looks = self._slots.turnover, 0
            self._look_later()

    def give_up(self) -> None:
        """Hands all of them back, and takes none until slots turn over again."""
        self._rate = 0.0
        self._measured_at, self._measured = self._loop.time(), self._slots.turnover
        while self._line:
            self._requeue(self._line.popleft()[1])

    def _start_next(self) -> bool:
        # After a pause longer than the lease they may be somebody else's.
        while self._line and not self._is_lapsed():
            if self._begin(self._line.popleft()[1]):
                return True
        return False

    def _current_rate(self) -> float:
        """Slots given back per second; half of it is the latest measurement."""
        passed = self._loop.time() - self._measured_at
        if passed >= RATE_SECONDS:
            latest = (self._slots.turnover - self._measured) / passed
            self._rate = (self._rate + latest) / 2
            self._measured_at, self._measured = self._loop.time(), self._slots.turnover
        return self._rate

    def _look_at_clock(self) -> None:
        """Twice, since after a pause of the whole process the
        first look comes before what lies in the sockets."""
        self._timer = None
        if not self._line:
            return
        self._quiet_looks = self._quiet_looks + 1 if self._slots.turnover == self._seen else 0
        self._seen = self._slots.turnover
        if self._quiet_looks >= 2 or self._loop.time() - self._line[0][0] > MUCH_TOO_LONG:
            self.give_up()
        else:
            self._look_later()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(LONGEST_WAIT / 2, self._look_at_clock)
