"""Closes runs: frees the slot, submits the settlement, and reports the run once it is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from docket.ledger import Settlement, SettleResult, requeue
from docket.ledger.statistics import cell_of, cell_without_times
from docket.model.states import KIND_NUMBERS, EndingKind

from .reporter import Reporter
from .runs import CancelReason, Run, RunEnd, Runs, UnwrittenEnd
from .settlement_writer import SettlementWriter
from .slots import Slots

logger: logging.Logger = logging.getLogger("docket.worker")


class RunCloser:
    """The last step of every run."""

    def __init__(self, runs: Runs, slots: Slots, writer: SettlementWriter, reporter: Reporter) -> None:
        self._runs = runs
        self._slots = slots
        self._writer = writer
        self._report = reporter
        # Since the session began.
        self.ended_runs: int = 0
        # Runs that were given up while the server could not be reached, and whether their body had
        # begun.
        self._given_up: list[tuple[Run, bool]] = []
        # Called when the server does not accept the end of a run that this worker believed to
        # have: its task may be a delivery of this worker without a run.
        self.on_superseded: Callable[[], None] = lambda: None

    def close(self, run: Run, end: RunEnd) -> None:
        """Ends a run. Its settlement is counted when the server accepts it, and not before."""
        if isinstance(end, UnwrittenEnd):
            if end is UnwrittenEnd.GIVEN_UP:
                self._give_up(run, begun=True)
            else:
                self._forget(run)
            return
        self._over(run)
        if run.where is not None:
            # Code that the body left running may still hold the execution. It must not schedule
            # another run any more.
            run.execution.epoch = 0
        end.worker = run.worker
        if run.kind is not None:
            _count(run, run.kind, end)
        self._writer.submit(end, partial(self._settled, run, end))

    def requeue(self, run: Run) -> None:
        """Gives back a run that has not begun. If the lease is lost, there is nothing to write."""
        if run.is_lost:
            self._give_up(run, begun=False)
        else:
            self.close(run, requeue(run.key, run.epoch))

    async def settle_and_wait(self, run: Run, settlement: Settlement) -> SettleResult:
        """Settles a run and returns the answer. The run stays open."""
        answered: asyncio.Future[SettleResult] = asyncio.get_running_loop().create_future()
        settlement.worker = run.worker
        self._writer.submit(settlement, lambda answer: None if answered.done() else answered.set_result(answer))
        return await answered

    # Runs that were given up

    def requeue_given_up(self) -> None:
        """The server is reachable again and the lease is kept: the runs that were given up
        still belong to this worker, unless they were replaced."""
        given_up, self._given_up = self._given_up, []
        for run, begun in given_up:
            kind = EndingKind.INTERRUPTED if begun else None
            self.close(run, run.ends(requeue(run.key, run.epoch, begun=begun), kind, where=None))

    def forget_given_up(self) -> None:
        """The lease is lost: other workers have these runs, and nothing is written."""
        given_up, self._given_up = self._given_up, []
        for run, _ in given_up:
            self._forget(run)

    def _give_up(self, run: Run, *, begun: bool) -> None:
        if run.reason is CancelReason.LEASE_LOST:
            self._forget(run)
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

    def _forget(self, run: Run) -> None:
        self._over(run)
        self._runs.remove(run)

    def _settled(self, run: Run, settlement: Settlement, answer: SettleResult) -> None:
        self._runs.remove(run)
        if run.where is None:
            self._unreported(run, answer)
        elif answer is SettleResult.LOST and not run.is_lost:
            self._report.superseded(run.execution, run.where)
            self.on_superseded()
        elif answer is SettleResult.CANCELLED:
            self._report.count(run.execution, EndingKind.CANCELLED, None)
        elif run.kind is not None:
            self._report.count(run.execution, run.kind, settlement)

    def _unreported(self, run: Run, answer: SettleResult) -> None:
        if run.error is not None:
            # A task that was replaced in the meantime is not buried.
            if answer is SettleResult.DONE:
                logger.error("task %r cannot be read and is buried: %s", run.key, run.error)
        elif answer is SettleResult.CANCELLED:
            self._report.never_began()


def _count(run: Run, kind: EndingKind, settlement: Settlement) -> None:
    """Adds the count for the statistics, which holds if the settlement is accepted."""
    seconds = run.seconds
    if seconds is None:
        settlement.cell = cell_without_times(KIND_NUMBERS[kind])
        return
    task = run.execution.record
    assert task is not None
    waited_ms = run.claimed_ms - task.due_ms
    # In the order of `Measures`, but made in a third of the time.
    settlement.cell, settlement.measures = cell_of(KIND_NUMBERS[kind], seconds, waited_ms), (seconds,)
