"""Settles runs: frees the slot, submits the settlement, and reports the run once it is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from docket.ledger import Settlement, SettleResult, requeue
from docket.ledger.statistics import cell_of, cell_without_times

from .outcome import CANCELLED, GIVEN_UP, INTERRUPTED_KIND, Outcome
from .reporter import Reporter
from .runs import CancelReason, Run, Runs
from .settler import Settler
from .slots import Slots

logger: logging.Logger = logging.getLogger("docket.worker")


class RunSettler:
    """The last step of every run."""

    def __init__(self, runs: Runs, slots: Slots, settler: Settler, reporter: Reporter) -> None:
        self._runs = runs
        self._slots = slots
        self._settler = settler
        self._report = reporter
        # Since the session began.
        self.ended_runs: int = 0
        # Runs that were given up while the server could not be reached, and whether their body had
        # begun.
        self._given_up: list[tuple[Run, bool]] = []
        # Called when the server does not accept an outcome of a run that this worker believed to
        # have: its task may be a delivery of this worker without a run.
        self.on_superseded: Callable[[], None] = lambda: None

    def settle(self, run: Run, outcome: Outcome) -> None:
        """Ends a run. Counters wait for the answer: an outcome that the server does not accept is
        not counted."""
        settlement = outcome.settlement
        if settlement is None:
            if outcome is GIVEN_UP:
                self._give_up(run, begun=True)
            else:
                self._close(run)
            return
        self._over(run)
        if outcome.execution is not None:
            # Code that the body left running may still hold the execution. It must not schedule
            # another run any more.
            outcome.execution.epoch = 0
        settlement.worker = run.worker
        if outcome.kind:
            _count(run, outcome.kind, settlement)
        self._settler.submit(settlement, partial(self._settled, run, outcome))

    def requeue(self, run: Run) -> None:
        """Gives back a run that has not begun. If the lease is lost, there is nothing to write."""
        if run.is_lost:
            self._give_up(run, begun=False)
        else:
            self.settle(run, Outcome(requeue(run.key, run.epoch)))

    async def ask(self, run: Run, settlement: Settlement) -> SettleResult:
        """Submits a settlement and returns the answer. The run stays open."""
        answered: asyncio.Future[SettleResult] = asyncio.get_running_loop().create_future()
        settlement.worker = run.worker
        self._settler.submit(settlement, lambda answer: None if answered.done() else answered.set_result(answer))
        return await answered

    # Runs that were given up

    def requeue_given_up(self) -> None:
        """The server is reachable again and the lease is kept: the runs that were given up
        still belong to this worker, unless they were replaced."""
        given_up, self._given_up = self._given_up, []
        for run, begun in given_up:
            kind = INTERRUPTED_KIND if begun else 0
            self.settle(run, Outcome(requeue(run.key, run.epoch, begun=begun), kind=kind))

    def forget_given_up(self) -> None:
        """The lease is lost: other workers have these runs, and nothing is written."""
        given_up, self._given_up = self._given_up, []
        for run, _ in given_up:
            self._close(run)

    def _give_up(self, run: Run, *, begun: bool) -> None:
        if run.reason is CancelReason.LEASE_LOST:
            self._close(run)
        else:
            self._over(run)
            self._given_up.append((run, begun))

    # The end

    def _over(self, run: Run) -> None:
        """The body has ended, so the slot is free. The run stays in `Runs` until it is settled."""
        run.over = True
        if run.holds_slot:
            run.holds_slot = False
            self.ended_runs += 1
            self._slots.give_back()

    def _close(self, run: Run) -> None:
        self._over(run)
        self._runs.remove(run)

    def _settled(self, run: Run, outcome: Outcome, answer: SettleResult) -> None:
        self._runs.remove(run)
        execution = outcome.execution
        if execution is None:
            self._unreported(run, outcome, answer)
        elif answer is SettleResult.LOST and not run.is_lost:
            self._report.superseded(execution, outcome.where)
            self.on_superseded()
        elif answer is SettleResult.CANCELLED:
            self._report.count(execution, CANCELLED)
        elif outcome.counters:
            self._report.count(execution, outcome.counters)

    def _unreported(self, run: Run, outcome: Outcome, answer: SettleResult) -> None:
        if outcome.error is not None:
            # A task that was replaced in the meantime is not buried.
            if answer is SettleResult.DONE:
                logger.error("task %r cannot be read and is buried: %s", run.key, outcome.error)
        elif answer is SettleResult.CANCELLED:
            self._report.never_began()


def _count(run: Run, kind: int, settlement: Settlement) -> None:
    """What statistics count if the settlement is accepted."""
    seconds = run.seconds
    if seconds is None:
        settlement.cell = cell_without_times(kind)
        return
    task = run.execution.record
    assert task is not None
    settlement.cell, settlement.seconds = cell_of(kind, seconds, run.claimed_ms - task.due_ms), seconds
