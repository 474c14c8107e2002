"""Decides what follows a run: the end of its task, a retry, the next run of a chain, or a requeue.

Every decision is an `Outcome`; the runner settles it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from docket.dependencies import (
    AdmissionBlocked,
    CompletionHandler,
    Perpetual,
    Resolved,
    Retry,
    SettledByLimit,
    TaskOutcome,
    Timeout,
    governing,
    plan_for,
)
from docket.execution import Execution
from docket.execution.execution import NextRun
from docket.ledger import Failure, RunEnding, Settlement, as_blocked, as_chain_end, failure, requeue, reschedule
from docket.model.times import duration_ms
from docket.worker.claiming.left_tasks import LeftTasks

from .endings import Endings
from .outcome import (
    CANCELLED,
    CANCELLED_KIND,
    CLOSED,
    DROPPED_KIND,
    FAILED_KIND,
    GIVEN_UP,
    INTERRUPTED_KIND,
    RETRIED_KIND,
    SUCCEEDED,
    SUCCEEDED_KIND,
    TIMED_OUT_KIND,
    UNKNOWN_FUNCTION_KIND,
    UNREADABLE_KIND,
    Counters,
    Outcome,
    counters_of,
)
from .redelivery_delays import RedeliveryDelays
from .run_counts import SPENT, RunCounts
from .runs import CancelReason, Run

if TYPE_CHECKING:
    from docket.worker.worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")

BLOCKED_DELAY = timedelta(milliseconds=100)
# A task that this worker cannot run comes back after at most this time, for another worker.
LONGEST_REQUEUE_MS = 500


def requeue_delay_ms() -> float:
    """A random delay. With equal delays, two tasks could go to the wrong one of two workers again
    and again."""
    return random.uniform(LONGEST_REQUEUE_MS / 10, LONGEST_REQUEUE_MS)


class Decisions:
    """Makes the outcome of each run of one worker."""

    def __init__(self, worker: Worker, endings: Endings, run_counts: RunCounts, left_tasks: LeftTasks) -> None:
        self._worker = worker
        self._report = worker.reporter
        self._run_counts = run_counts
        self._redelivery = RedeliveryDelays(duration_ms(worker.redelivery_timeout))
        self._left_tasks = left_tasks
        self._endings = endings
        self._run_endings = endings.run_endings

    # Runs whose body ended

    def succeeded(self, run: Run, seconds: float) -> Outcome:
        """The short path: a plain run that returned None has nothing to decide or to store."""
        execution = run.execution
        self._report.log_success(execution, seconds)
        return Outcome(
            self._endings.completed(run, execution.has_used_progress()), execution, SUCCEEDED, SUCCEEDED_KIND
        )

    async def decide(self, run: Run) -> Outcome:
        """Decides after any other call."""
        ended = run.ended
        if isinstance(ended, AdmissionBlocked):
            return await self._blocked(run, ended)
        return await self._after_body(run, ended, run.resolved or Resolved())

    async def _after_body(self, run: Run, ended: TaskOutcome, resolved: Resolved) -> Outcome:
        """Asks the behaviours. If one of them fails, the task is delivered again."""
        execution = run.execution
        retried = again = False
        try:
            if ended.exception is not None and resolved.failure_handler is not None:
                retried = await resolved.failure_handler.handle_failure(execution, ended)
            if not retried and resolved.completion_handler is not None:
                again = await resolved.completion_handler.on_complete(execution, ended)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled(run):
                return self._leave_to_others(run, ended.exception)
            logger.exception(
                "a behaviour of %s failed after the run; the task will be delivered again",
                execution.call_repr(),
            )
            delay_ms = self._redelivery.next_ms(run.key)
            again_later = requeue(run.key, run.epoch, delay_ms=delay_ms, begun=True)
            return Outcome(again_later, execution, kind=INTERRUPTED_KIND, error=ended.exception)
        # The next run that the behaviours want. If they want none, the body may have asked for one
        # with `execution.schedule()`.
        cut_off = execution.next_run is not None and self._run_counts.is_spent(run.key)
        next_run = None if cut_off else execution.next_run
        # The task has attempts left, so it has not failed.
        cancelled = retried and cut_off
        execution.epoch = 0
        try:
            settlement = await self._settlement(run, ended, next_run, retried=retried, cut_off=cut_off)
        except asyncio.CancelledError:
            return self._leave_to_others(run, ended.exception)
        if next_run is None and _ends_chain(resolved.completion_handler):
            settlement = as_chain_end(settlement)
        goes_on = next_run is not None
        if retried and next_run is not None:
            handler = resolved.failure_handler
            attempts = handler.attempts if isinstance(handler, Retry) else None
            self._report.log_retry(execution, ended, next_run, attempts)
        else:
            self._report.log_end(execution, ended, goes_on or again or (retried and not cut_off))
        where = "retry" if retried else "worker" if resolved.completion_handler is None else "on_complete"
        counters = counters_of(ended, retried=goes_on and retried, perpetuated=goes_on and not retried)
        if cancelled:
            return Outcome(settlement, execution, CANCELLED, CANCELLED_KIND, where, ended.exception)
        kind = RETRIED_KIND if goes_on and retried else _kind_of(ended, resolved)
        return Outcome(settlement, execution, counters, kind, where, ended.exception)

    async def _settlement(
        self, run: Run, ended: TaskOutcome, next_run: NextRun | None, *, retried: bool, cut_off: bool
    ) -> Settlement:
        has_progress = run.execution.has_used_progress()
        if next_run is not None:
            if retried:
                return await self._next(run, next_run, failure=self._failure(run, ended))
            return await self._next(run, next_run, ending=await self._run_endings.of(run, ended))
        if retried and cut_off:
            return self._endings.cancelled(run, SPENT, has_progress)
        if ended.exception is None and ended.result is None:
            return self._endings.completed(run, has_progress)
        # A chain that `run_at_most` has cut off would go on.
        return await self._endings.of(run, ended, has_progress, keep=not cut_off)

    def _failure(self, run: Run, ended: TaskOutcome) -> Failure | None:
        """The failed attempt, for callers that ask while the task waits for its retry."""
        error, record = ended.exception, run.execution.record
        if error is None or record is None:
            return None
        return failure(record.attempt, self._worker.name, self._worker.docket.payloads.error_text(error))

    async def _next(
        self,
        run: Run,
        next_run: NextRun,
        *,
        is_delayed: bool = False,
        ending: RunEnding | None = None,
        failure: Failure | None = None,
    ) -> Settlement:
        payload = await self._endings.results.store_call(run, next_run.call)
        return next_run.settlement(
            run.key, run.epoch, payload=payload, is_delayed=is_delayed, ending=ending, failure=failure
        )

    # Runs that were not admitted

    def not_admitted(self, run: Run, reason: str, kind: int = CANCELLED_KIND) -> Outcome:
        """The task ends without a run."""
        return Outcome(self._endings.not_run(run, reason), run.execution, CANCELLED, kind)

    async def _blocked(self, run: Run, blocked: AdmissionBlocked) -> Outcome:
        execution = run.execution
        if blocked.handled or blocked.reschedule:
            self._run_counts.take_back(run.key)
        if blocked.handled:
            self._report.blocked(execution, blocked.reason, "it waits")
            if execution.next_run is not None:
                # A user's dependency called `execution.schedule()`. The new time is written with
                # the end of the run.
                return _blocked_outcome(execution, await self._next(run, execution.next_run, is_delayed=True))
            if isinstance(blocked, SettledByLimit):
                return CLOSED
            # If the task was replaced or cancelled, this changes nothing. A task for which the
            # dependency did nothing must not stay RUNNING.
            ended = self._endings.cancelled(run, f"left waiting by {blocked.reason}")
            return Outcome(as_blocked(ended, execution.taken), kind=DROPPED_KIND)
        if blocked.reschedule:
            delay = blocked.retry_delay if blocked.retry_delay is not None else BLOCKED_DELAY
            self._report.blocked(execution, blocked.reason, f"delayed by {delay.total_seconds():g} s")
            later = reschedule(
                run.key, run.epoch, attempt=execution.attempt, delay_ms=duration_ms(delay), is_delayed=True
            )
            return _blocked_outcome(execution, later)
        self._report.blocked(execution, blocked.reason, "dropped")
        return await self._dropped(run, blocked)

    async def _dropped(self, run: Run, blocked: AdmissionBlocked) -> Outcome:
        """A dropped task ends. A perpetual task skips only this run."""
        execution = run.execution
        perpetual = governing(plan_for(execution.function), execution, Perpetual)
        if perpetual is not None and not self._run_counts.is_spent(run.key):
            await perpetual.provide(execution, self._worker).on_complete(execution, TaskOutcome(timedelta(0)))
        next_run = execution.next_run
        if next_run is None:
            ended = self._endings.not_run(run, f"dropped: {blocked.reason}")
            return _blocked_outcome(execution, ended, CANCELLED, DROPPED_KIND)
        if next_run.delay is not None:
            next_run.delay = max(next_run.delay, blocked.retry_delay or BLOCKED_DELAY)
        return _blocked_outcome(execution, await self._next(run, next_run), kind=DROPPED_KIND)

    # Runs that were cancelled

    def cancelled(self, run: Run, seconds: float) -> Outcome:
        """Decides by the source of the cancel. If the worker or the event loop stops the run, the
        task goes to another worker. If a user cancels the task, or the body raises CancelledError
        itself, the task ends."""
        execution, run.seconds = run.execution, seconds
        self._report.over(execution, seconds)
        if run.is_lost or run.reason is CancelReason.SHUTDOWN or (run.reason is None and _is_cancelled(run)):
            return self._leave_to_others(run)
        self._report.cancelled(execution, seconds)
        ended = self._endings.cancelled(run, has_progress=execution.has_used_progress())
        return Outcome(ended, execution, CANCELLED, CANCELLED_KIND)

    def _leave_to_others(self, run: Run, error: BaseException | None = None) -> Outcome:
        """The body has begun, and another worker runs the task again."""
        if run.is_lost:
            self._report.superseded(run.execution)
            return GIVEN_UP
        return Outcome(requeue(run.key, run.epoch, begun=True), run.execution, kind=INTERRUPTED_KIND, error=error)

    # Runs that could not begin

    def not_run(self, run: Run) -> Outcome:
        """This worker could not run the task; another worker may."""
        return Outcome(requeue(run.key, run.epoch, delay_ms=requeue_delay_ms()))

    def left_for_others(self, run: Run, error: Exception) -> Outcome:
        """A worker of a newer release, or with other keys, may run the task."""
        self._left_tasks.note_unreadable(run.key)
        return Outcome(requeue(run.key, run.epoch, delay_ms=self._left_tasks.delay_ms(run.key, str(error))))

    def unreadable(self, run: Run, error: Exception) -> Outcome:
        """The task fails and is kept as a dead letter."""
        return Outcome(self._endings.unreadable(run, error), kind=UNREADABLE_KIND, error=error)

    def without_function(self, run: Run, error: Exception) -> Outcome:
        """The task fails because no live worker knows its function."""
        counters = counters_of(TaskOutcome(timedelta(0), None, error))
        return Outcome(self._endings.failed(run, error), run.execution, counters, UNKNOWN_FUNCTION_KIND, error=error)


def _blocked_outcome(execution: Execution, settlement: Settlement, counters: Counters = (), kind: int = 0) -> Outcome:
    """The body has not begun, so the settlement gives back what the run took of its limits."""
    return Outcome(as_blocked(settlement, execution.taken), execution, counters, kind)


def _kind_of(ended: TaskOutcome, resolved: Resolved) -> int:
    """How a run ended that no retry follows."""
    if ended.exception is None:
        return SUCCEEDED_KIND
    runtime = resolved.runtime
    # An exception may have a `__class__` that raises; `isinstance` would read it.
    is_timeout = issubclass(type(ended.exception), TimeoutError)
    is_too_long = is_timeout and isinstance(runtime, Timeout) and runtime.expired()
    return TIMED_OUT_KIND if is_too_long else FAILED_KIND


def _ends_chain(handler: CompletionHandler[Any] | None) -> bool:
    """Whether the body of an automatic task has ended its chain of runs."""
    return handler is not None and isinstance(handler, Perpetual) and handler.automatic and handler.cancelled


def _is_cancelled(run: Run) -> bool:
    """Whether the run is being cancelled. If not, the body raised CancelledError itself."""
    if run.reason is not None:
        # A body that was left behind may be closed while no event loop runs: then there is no
        # current task.
        return True
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
