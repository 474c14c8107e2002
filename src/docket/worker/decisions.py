"""What follows a run: the end of its task, a retry, a successor, or another try later."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from docket.dependencies import (
    AdmissionBlocked,
    CompletionHandler,
    Perpetual,
    Resolved,
    SettledByLimit,
    TaskOutcome,
    governing,
    plan_for,
)
from docket.execution import Execution
from docket.execution.execution import NextRun
from docket.ledger import RunEnding, Settlement, as_blocked, as_chain_end, requeue, reschedule
from docket.model.times import duration_ms

from .endings import Endings
from .redelivery_delays import RedeliveryDelays
from .reporter import CANCELLED, SUCCEEDED, RunCounts
from .run_limits import SPENT, RunLimits
from .run_settler import GIVEN_UP, RunSettler
from .runs import CancelReason, Run

if TYPE_CHECKING:
    from .worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")

BLOCKED_DELAY = timedelta(milliseconds=100)


def _ends_chain(handler: CompletionHandler[Any] | None) -> bool:
    """Whether the body of an automatic task has said that no run is to follow."""
    return handler is not None and isinstance(handler, Perpetual) and handler.automatic and handler.cancelled


class Decisions:
    """Decides what follows each run of one worker, and has it settled."""

    def __init__(self, worker: Worker, runs: RunSettler, endings: Endings, limits: RunLimits) -> None:
        self._worker = worker
        self._runs = runs
        self._report = worker.reporter
        self._limits = limits
        self._redelivery = RedeliveryDelays(worker.redelivery_ms)
        self._endings = endings
        self._run_endings = endings.run_endings

    def complete(self, run: Run, execution: Execution, seconds: float) -> None:
        """A plain run has ended well and has left nothing:
        there is nothing to decide and nothing to store."""
        self._report.log_success(execution, seconds)
        self._runs.settle(run, execution, self._endings.completed(run, execution.has_used_progress()), SUCCEEDED)

    async def decide(self, run: Run, execution: Execution, resolved: Resolved, outcome: TaskOutcome) -> None:
        """What follows: a retry, a successor or the end. A behaviour
        that fails leaves the task for another delivery."""
        retried = again = False
        try:
            if outcome.exception is not None and resolved.failure_handler is not None:
                retried = await resolved.failure_handler.handle_failure(execution, outcome)
            if not retried and resolved.completion_handler is not None:
                again = await resolved.completion_handler.on_complete(execution, outcome)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled(run):
                self._runs.let_go(run, execution)
                return
            logger.exception(
                "a behaviour of %s failed after the run; the task will be delivered again",
                execution.call_repr(),
            )
            delay_ms = self._redelivery.next_ms(run.key)
            self._runs.settle(run, execution, requeue(run.key, run.epoch, delay_ms=delay_ms, begun=True))
            return
        # The behaviours' word, or `execution.schedule()`
        # of the body where none of them wants another run.
        cut_off = execution.next_run is not None and self._limits.is_spent(run.key)
        next_run = None if cut_off else execution.next_run
        # It has attempts left, so it has not failed for good.
        cancelled = retried and cut_off
        execution.epoch = 0
        try:
            if next_run is not None:
                ending = None if retried else await self._run_endings.of(run, outcome)
                settlement = await self._next(run, next_run, ending=ending)
            elif cancelled:
                settlement = self._endings.cancelled(run, SPENT, execution.has_used_progress())
            elif outcome.exception is None and outcome.result is None:
                settlement = self._endings.completed(run, execution.has_used_progress())
            else:
                settlement = await self._endings.of(run, outcome, execution.has_used_progress())
        except asyncio.CancelledError:
            self._runs.let_go(run, execution)
            return
        if next_run is None and _ends_chain(resolved.completion_handler):
            settlement = as_chain_end(settlement)
        goes_on = next_run is not None
        self._report.log_end(execution, outcome, goes_on or again or (retried and not cut_off))
        counts = RunCounts(
            None if cancelled else outcome,
            retried=goes_on and retried,
            perpetuated=goes_on and not retried,
            where="retry" if retried else "worker" if resolved.completion_handler is None else "on_complete",
        )
        self._runs.settle(run, execution, settlement, counts)

    async def _next(
        self, run: Run, next_run: NextRun, *, is_delayed: bool = False, ending: RunEnding | None = None
    ) -> Settlement:
        payload = await self._endings.results.store_call(run, next_run.call)
        return next_run.settlement(run.key, run.epoch, payload=payload, is_delayed=is_delayed, ending=ending)

    # What is no ending of the task's own

    async def blocked(self, run: Run, execution: Execution, blocked: AdmissionBlocked) -> None:
        if blocked.handled or blocked.reschedule:
            self._limits.take_back(run.key)
        if blocked.handled:
            self._report.blocked(execution, blocked.reason, "it waits")
            if execution.next_run is not None:
                # A user's dependency put it away with `execution.schedule()`,
                # which is written down with the run's end.
                self._settle_blocked(run, execution, await self._next(run, execution.next_run, is_delayed=True))
            elif isinstance(blocked, SettledByLimit):
                self._runs.close(run)
            else:
                # Where it was replaced or cancelled this changes nothing; one that nobody has put
                # away must not stay as running.
                ended = self._endings.cancelled(run, f"put away by {blocked.reason}")
                self._runs.settle(run, None, as_blocked(ended, execution.taken))
        elif blocked.reschedule:
            delay = blocked.retry_delay if blocked.retry_delay is not None else BLOCKED_DELAY
            self._report.blocked(execution, blocked.reason, f"put off by {delay.total_seconds():g} s")
            later = reschedule(
                run.key, run.epoch, attempt=execution.attempt, delay_ms=duration_ms(delay), is_delayed=True
            )
            self._settle_blocked(run, execution, later)
        else:
            self._report.blocked(execution, blocked.reason, "dropped")
            await self._drop(run, execution, blocked)

    async def _drop(self, run: Run, execution: Execution, blocked: AdmissionBlocked) -> None:
        """A dropped task ends. One that perpetuates itself
        skips this run only, and comes back when it may run."""
        perpetual = governing(plan_for(execution.function), execution, Perpetual)
        if perpetual is not None and not self._limits.is_spent(run.key):
            await perpetual.provide(execution, self._worker).on_complete(execution, TaskOutcome(timedelta(0)))
        next_run = execution.next_run
        if next_run is None:
            ended = self._endings.cancelled(run, f"dropped: {blocked.reason}")
            self._settle_blocked(run, execution, ended, CANCELLED)
            return
        if next_run.delay is not None:
            next_run.delay = max(next_run.delay, blocked.retry_delay or BLOCKED_DELAY)
        self._settle_blocked(run, execution, await self._next(run, next_run))

    def _settle_blocked(
        self, run: Run, execution: Execution, settlement: Settlement, counts: RunCounts | None = None
    ) -> None:
        """The run has not begun: what it took of its limits is given back with its end."""
        self._runs.settle(run, execution, as_blocked(settlement, execution.taken), counts)

    def cancelled(self, run: Run, execution: Execution, seconds: float) -> None:
        """Sorts a cancel by where it came from: ours (a lost lease, a shutdown, an order), a
        stranger's, or the body's own."""
        self._report.over(execution, seconds)
        if run.reason in GIVEN_UP:
            self._report.superseded(execution)
            self._runs.give_up(run, begun=True)
            return
        if run.reason is CancelReason.SHUTDOWN or (run.reason is None and _is_cancelled(run)):
            self._runs.settle(run, execution, requeue(run.key, run.epoch, begun=True))
            return
        self._report.cancelled(execution, seconds)
        ended = self._endings.cancelled(run, has_progress=execution.has_used_progress())
        self._runs.settle(run, execution, ended, CANCELLED)


def _is_cancelled(run: Run) -> bool:
    """Whether somebody cancels the run. If not, a
    CancelledError is the word of whoever raised it."""
    if run.reason is not None:
        # A body that was left behind may be torn down when no event loop runs: then there is no
        # current task to ask for.
        return True
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
