"""The entrance for deliveries: answers of claims, direct deliveries, and deliveries whose answer or
message was lost. A delivery starts in a slot, or is prefetched.

The end of one task and the start of the next are a round trip to the server apart. For short tasks
that is a large share: if fifty tasks of fifty milliseconds end together, their slots would be empty
for several milliseconds each time. So a worker whose slots turn over quickly prefetches as many
tasks as will find a slot within a round trip. No task waits for long: if no slot becomes free, the
prefetched tasks are requeued.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from docket._aio import cancel_and_wait, wait_out
from docket.ledger import Delivery
from docket.storage.records import is_suspect
from docket.worker.lease.lease import LeaseView
from docket.worker.running.runner import Runner
from docket.worker.running.runs import Run, Runs, Slots

from .isolation import ProcessRuns, this_process

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


# How often a worker whose lease has lapsed checks whether it was renewed.
LAPSED_SECONDS = 0.02
# Epochs of adopted runs that are remembered. A message or an answer for one of them may still come.
MOST_REMEMBERED = 1000


# None: the worker has no lease.
Claimed = Sequence[Delivery] | None


class ClaimGuard:
    """Lets a service end between its claims only. A service that is asked to stop waits for the
    answer of its claim and gives back the claimed tasks."""

    def __init__(self, refuse: Callable[[Delivery], None]) -> None:
        self._refuse = refuse
        self._is_claiming = self._is_stopping = False

    async def run(self, steps: Coroutine[Any, Any, None], name: str) -> None:
        """Runs the steps of the service until cancelled: then they end at once, or when the claim
        that is under way is answered."""
        self._is_stopping = False
        running = asyncio.create_task(steps, name=name)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self._is_stopping = True
            if not self._is_claiming:
                await cancel_and_wait([running], "docket: the worker stops")
            await wait_out(running)
            raise

    async def answer(self, claim: Coroutine[Any, Any, Claimed]) -> Claimed:
        """Waits for the answer of a claim even if the worker stops. Then the claimed tasks go back
        untouched."""
        self._is_claiming, claimed = True, None
        try:
            claimed = await claim
        except Exception:
            if not self._is_stopping:
                raise
        finally:
            self._is_claiming = False
        if not self._is_stopping:
            return claimed
        for delivery in claimed or ():
            self._refuse(delivery)
        raise asyncio.CancelledError


class Intake:
    """Starts each run once. A run is known by its epoch."""

    def __init__(self, slots: Slots, runner: Runner, runs: Runs, lease: LeaseView, name: str) -> None:
        self._slots = slots
        self._runner = runner
        self._runs = runs
        self._lease = lease
        self._name = name
        # Runs start in the context in which the worker was started: context variables of a service
        # must not leak into tasks.
        self._context = contextvars.copy_context()
        self._context.run(runner.enter_context)
        self._late_starts: set[asyncio.Task[None]] = set()
        # In the order in which they were adopted.
        self._adopted: dict[int, None] = {}
        self.prefetcher: Prefetcher = Prefetcher(slots, lambda: lease.lapsed, self._start, runner.requeue)
        self.worker = ""
        self.process: ProcessRuns = this_process()

    def is_known(self, epoch: int) -> bool:
        """Whether this worker has the run, or adopted it before."""
        return self._runs.find(epoch) is not None or epoch in self._adopted

    def epochs(self) -> list[int]:
        """The runs of this worker: started, waiting for a slot, or ended and not yet settled."""
        return self._runs.epochs()

    def keys(self) -> set[str]:
        """The tasks of these runs."""
        return set(self._runs.keys())

    async def is_still_ours(self, worker: str) -> bool:
        """After a pause longer than the lease, other workers may have the tasks whose deliveries
        waited in this worker's socket. So the lease must be renewed before they start."""
        while self._lease.lapsed and self.worker == worker:
            self._lease.renew_now()
            await asyncio.sleep(LAPSED_SECONDS)
        return self.worker == worker

    async def receive(self, worker: str, deliveries: Sequence[Delivery]) -> None:
        """Starts the deliveries of a claim. A delivery that finds no slot is prefetched."""
        if deliveries and not await self.is_still_ours(worker):
            return
        slots = self._slots
        for delivery in deliveries:
            # A consumer group that was created again delivers once more the tasks that run here.
            if not self.is_known(delivery.epoch):
                run = self._accept(delivery)
                if slots.free > 0:
                    slots.free -= 1
                    if not self._start(run):
                        slots.give_back()
                else:
                    self.prefetcher.add(run)

    def receive_direct(self, delivery: Delivery) -> None:
        """Starts a direct delivery in the slot that was reserved for it."""
        if self._lease.lapsed:
            self._slots.give_back()
            task = asyncio.create_task(self.receive(self.worker, [delivery]), name=f"{self._name} - claiming")
            self._late_starts.add(task)
            task.add_done_callback(self._late_starts.discard)
        else:
            self._start_or_give_back(self._accept(delivery))

    def reserve(self, epochs: Iterable[int]) -> None:
        """From now on only `adopt` starts these runs: an answer or a message that comes later is
        ignored."""
        for epoch in epochs:
            self._adopted[epoch] = None
        for epoch in list(self._adopted)[: max(len(self._adopted) - MOST_REMEMBERED, 0)]:
            del self._adopted[epoch]

    def adopt(self, delivery: Delivery, *, has_slot: bool) -> None:
        """Starts a run whose answer or message was lost. If
        there is no slot, the run is requeued at once."""
        if self._runs.find(delivery.epoch):
            if has_slot:
                self._slots.give_back()
            return
        self.reserve([delivery.epoch])
        if is_suspect(delivery.record):
            # It may have to run alone in a worker.
            if has_slot:
                self._slots.give_back()
            self._give_back(delivery)
            return
        if not has_slot and self._slots.free > 0:
            self._slots.take()
            has_slot = True
        if has_slot:
            self._start_or_give_back(self._accept(delivery))
        else:
            self._give_back(delivery)

    def refuse(self, delivery: Delivery) -> None:
        """Gives a delivery back untouched, unless its run is known."""
        if not self.is_known(delivery.epoch):
            self._give_back(delivery)

    def refuse_adopted(self, delivery: Delivery) -> None:
        """Refuses a run that was reserved for adoption."""
        if not self._runs.find(delivery.epoch):
            self._give_back(delivery)

    async def close(self) -> None:
        await cancel_and_wait(list(self._late_starts), "docket: the worker stops")
        self.prefetcher.give_up()

    def _accept(self, delivery: Delivery) -> Run:
        """Makes the run of a delivery. The worker is responsible for it until it is settled."""
        run = Run(delivery.key, delivery.record, delivery.epoch, delivery.claimed_ms, self._lease.id)
        self._runs.add(run)
        return run

    def _give_back(self, delivery: Delivery) -> None:
        self._runner.requeue(self._accept(delivery))

    def _start_or_give_back(self, run: Run) -> None:
        """Starts a run in a slot that was taken for it."""
        if not self._start(run):
            self._slots.give_back()

    def _start(self, run: Run) -> bool:
        """False if the run must not start: then it is requeued, and needs no slot."""
        if self.process.keeps_out(self._runs):
            self._runner.requeue(run)
            return False
        return self._context.run(self._runner.start, run)
