"""Claims a few tasks a moment before there are slots for them.

The end of one task and the start of the next are a round trip to the server apart. For short tasks
that is a large share: if fifty tasks of fifty milliseconds end together, their slots would be empty
for several milliseconds each time. So a worker whose slots turn over quickly prefetches as many
tasks as will find a slot within a round trip. No task waits for long: if no slot becomes free, the
prefetched tasks are requeued.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from docket.worker.running.runs import Run
from docket.worker.running.slots import Slots

# Prefetch as many tasks as slots will become free within this time, at the recent turnover rate.
HORIZON_SECONDS = 0.01
# The rate is measured at most this often.
RATE_SECONDS = 0.05
# Prefetch at most this many tasks, and at most so many for each slot but the first: a worker with
# one slot prefetches none. With few slots a batch would otherwise have few tasks, and a batch costs
# the server much the same whatever it contains.
MOST = 100
PER_SLOT = 4
# Prefetched tasks wait this long while no slot is given back at all.
LONGEST_WAIT = 0.05
# If slots turn over more slowly than before, as many prefetched tasks stay as will find a slot
# within twice that time. Another worker may be idle.
_KEPT_PER_TURNOVER = 4
# No prefetched task waits longer than this.
MUCH_TOO_LONG = 0.5

# False if the run does not start, because it was cancelled in the meantime: then it needs no slot.
Start = Callable[[Run], bool]


class Prefetcher:
    """Prefetched runs, in the order in which the server delivered them."""

    def __init__(
        self, slots: Slots, is_lapsed: Callable[[], bool], start: Start, requeue: Callable[[Run], None]
    ) -> None:
        self._slots = slots
        self._is_lapsed = is_lapsed
        self._start = start
        self._requeue = requeue
        self._waiting: deque[tuple[float, Run]] = deque()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._seen = self._slow_checks = 0
        self._rate = 0.0
        self._measured_at, self._measured = self._loop.time(), 0
        slots.pass_on = self._start_next

    def room(self) -> int:
        """How many more tasks may be prefetched."""
        most = min(int(self._current_rate() * HORIZON_SECONDS), (self._slots.count - 1) * PER_SLOT, MOST)
        return max(most - len(self._waiting), 0)

    def add(self, run: Run) -> None:
        self._waiting.append((self._loop.time(), run))
        if self._timer is None:
            self._seen, self._slow_checks = self._slots.turnover, 0
            self._check_later()

    def give_up(self) -> None:
        """Requeues all prefetched runs. None is prefetched until slots turn over again."""
        self._rate = 0.0
        self._measured_at, self._measured = self._loop.time(), self._slots.turnover
        for run in self.take_all():
            self._requeue(run)

    def take_all(self) -> list[Run]:
        """Takes all prefetched runs: they do not start here any more. Safe to call from any thread,
        while the event loop is blocked."""
        runs: list[Run] = []
        while (run := self._next()) is not None:
            runs.append(run)
        return runs

    def _next(self) -> Run | None:
        """A single step, since another thread may take the last run."""
        try:
            return self._waiting.popleft()[1]
        except IndexError:
            return None

    def _start_next(self) -> bool:
        # After a pause longer than the lease, other workers may have these tasks.
        while not self._is_lapsed() and (run := self._next()) is not None:
            if self._start(run):
                return True
        return False

    def _current_rate(self) -> float:
        """Slots given back per second: the mean of the latest measurement and the rate before."""
        passed = self._loop.time() - self._measured_at
        if passed >= RATE_SECONDS:
            latest = (self._slots.turnover - self._measured) / passed
            self._rate = (self._rate + latest) / 2
            self._measured_at, self._measured = self._loop.time(), self._slots.turnover
        return self._rate

    def _check(self) -> None:
        """Requeues the tasks that would wait too long, after two checks with too little turnover.
        One is not enough: after a pause of the whole process, the first check comes before the
        messages that wait in the sockets."""
        self._timer = None
        try:
            oldest = self._waiting[0][0]
        except IndexError:
            return
        kept = (self._slots.turnover - self._seen) * _KEPT_PER_TURNOVER
        self._slow_checks = self._slow_checks + 1 if len(self._waiting) > kept else 0
        self._seen = self._slots.turnover
        if self._loop.time() - oldest > MUCH_TOO_LONG or (self._slow_checks >= 2 and not kept):
            self.give_up()
            return
        if self._slow_checks >= 2:
            self._give_up_all_but(kept)
        self._check_later()

    def _give_up_all_but(self, kept: int) -> None:
        """Requeues the latest ones. The rate is that of the last check."""
        self._slow_checks = 0
        self._rate = kept / _KEPT_PER_TURNOVER / (LONGEST_WAIT / 2)
        self._measured_at, self._measured = self._loop.time(), self._slots.turnover
        latest: deque[Run] = deque()
        with contextlib.suppress(IndexError):
            while len(self._waiting) > kept:
                latest.appendleft(self._waiting.pop()[1])
        for run in latest:
            self._requeue(run)

    def _check_later(self) -> None:
        self._timer = self._loop.call_later(LONGEST_WAIT / 2, self._check)
