"""The way of a run off the books: settled, given back, or given up."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from docket.execution import Execution
from docket.ledger import Settlement, SettleResult, requeue

from .reporter import CANCELLED, RunCounts
from .runs import CancelReason, Run

if TYPE_CHECKING:
    from .staff import Staff
    from .worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")

# Reasons after which a run is not settled as usual: others may have it.
GIVEN_UP = (CancelReason.LEASE_LOST, CancelReason.CUT_OFF)


class RunSettler:
    """Ends runs: frees the slot, hands the settlement to the
    settler, and counts the run once that is answered."""

    def __init__(self, worker: Worker, staff: Staff) -> None:
        self._runs = staff.runs
        self._slots = staff.slots
        self._settler = staff.settler
        self._report = worker.reporter
        # Runs that were given up while the server could
        # not be reached, and whether their body had begun.
        self._given_up: list[tuple[Run, bool]] = []

    def settle(
        self, run: Run, execution: Execution | None, settlement: Settlement, counts: RunCounts | None = None
    ) -> None:
        """Counts only what is written down: the success or failure
        of a run that no longer counts is nobody's concern."""
        self._over(run)
        if execution is not None:
            # What the body left behind may still hold it: nothing follows this run any more.
            execution.epoch = 0

        def answered(answer: SettleResult) -> None:
            self._runs.remove(run)
            if execution is None:
                if answer is SettleResult.CANCELLED:
                    self._report.never_began()
                return
            if answer is SettleResult.LOST and run.reason not in GIVEN_UP:
                self._report.superseded(execution, "worker" if counts is None else counts.where)
            elif answer is SettleResult.CANCELLED:
                self._report.count(execution, CANCELLED)
            elif counts is not None:
                self._report.count(execution, counts)

        settlement.worker = run.worker
        self._settler.submit(settlement, answered)

    def bury(self, run: Run, settlement: Settlement, error: Exception) -> None:
        """Settles a task that cannot be read. One that
        was replaced meanwhile is nobody's concern."""
        self._over(run)

        def answered(answer: SettleResult) -> None:
            self._runs.remove(run)
            if answer is SettleResult.DONE:
                logger.error("task %r cannot be read and is buried: %s", run.key, error)

        settlement.worker = run.worker
        self._settler.submit(settlement, answered)

    async def settled(self, run: Run, settlement: Settlement) -> SettleResult:
        """Settles and waits for the answer; the run stays open."""
        answered: asyncio.Future[SettleResult] = asyncio.get_running_loop().create_future()
        settlement.worker = run.worker
        self._settler.submit(settlement, lambda answer: None if answered.done() else answered.set_result(answer))
        return await answered

    def close(self, run: Run) -> None:
        """The run is over and needs no settlement."""
        self._over(run)
        self._runs.remove(run)

    def _over(self, run: Run) -> None:
        """The body is done, so the slot is free; the run
        stays on the books until its ending is written."""
        run.over = True
        if run.holds_slot:
            run.holds_slot = False
            self._slots.give_back()

    def requeue(self, run: Run) -> None:
        """Gives back what has not begun. With the lease
        it was lost: then there is nothing to write."""
        if run.reason in GIVEN_UP:
            self.give_up(run, begun=False)
        else:
            self.settle(run, None, requeue(run.key, run.epoch))

    def requeue_given_up(self) -> None:
        """The server is reachable again, and the lease is still ours: so are the runs, unless
        others have replaced them."""
        given_up, self._given_up = self._given_up, []
        for run, begun in given_up:
            self.settle(run, None, requeue(run.key, run.epoch, begun=begun))

    def forget_given_up(self) -> None:
        """The lease was lost: others have these runs, and nothing is written."""
        given_up, self._given_up = self._given_up, []
        for run, _ in given_up:
            self.close(run)

    def give_up(self, run: Run, *, begun: bool) -> None:
        if run.reason is CancelReason.LEASE_LOST:
            self.close(run)
        else:
            self._over(run)
            self._given_up.append((run, begun))

    def let_go(self, run: Run, execution: Execution) -> None:
        """Cancelled after its body has ended: what cannot be written is left to others."""
        if run.reason in GIVEN_UP:
            self._report.superseded(execution)
            self.give_up(run, begun=True)
        else:
            self.settle(run, execution, requeue(run.key, run.epoch, begun=True))
