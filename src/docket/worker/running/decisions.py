"""Decides what follows a run: the end of its task, a retry, the next run of a chain, or a requeue.

Every decision is a settlement; the run notes how it ended, and the runner closes it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
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
from docket.ledger import Settlement, as_blocked, as_chain_end, as_going_on, as_retry, requeue, reschedule
from docket.model.states import EndingKind
from docket.model.times import duration_ms
from docket.worker.claiming.deferred_tasks import DeferredTasks, RedeliveryDelays

from .final_settlements import FinalSettlements
from .runs import CancelReason, Run, RunEnd, UnwrittenEnd

if TYPE_CHECKING:
    from docket.worker.worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")

SPENT = "run_at_most allows no further run"
BLOCKED_DELAY = timedelta(milliseconds=100)
# A task that this worker cannot run comes back after at most this time, for another worker.
LONGEST_REQUEUE_MS = 500


def requeue_delay_ms() -> float:
    """A random delay. With equal delays, two tasks could go to the wrong one of two workers again
    and again."""
    return random.uniform(LONGEST_REQUEUE_MS / 10, LONGEST_REQUEUE_MS)


class RunCounts:
    """Counts the runs of the keys that `run_at_most` names: it says how often each may run."""

    def __init__(self, most: Mapping[str, int]) -> None:
        self._most = most
        self._begun = dict.fromkeys(most, 0)

    def count(self, key: str) -> None:
        if key in self._begun:
            self._begun[key] += 1

    def take_back(self, key: str) -> None:
        """Uncounts a run that was not admitted and comes back."""
        if key in self._begun:
            self._begun[key] -= 1

    def is_spent(self, key: str) -> bool:
        """Whether the key has used up its runs."""
        return key in self._most and self._begun[key] >= self._most[key]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of the behaviours of a run, after its body."""

    # The part that has answered: "retry", "on_complete", or "worker" if no behaviour was asked.
    by: str
    # Whether that behaviour has scheduled another run, as it says itself.
    says_again: bool
    # The next run that a behaviour has scheduled, or the body with `execution.schedule()`.
    next_run: NextRun | None
    # There would be a next run, but `run_at_most` allows none.
    is_cut_off: bool

    @property
    def is_retry(self) -> bool:
        """The failed task runs again, or would if it were not cut off: it has not failed."""
        return self.by == "retry" and (self.next_run is not None or self.is_cut_off)


class Decisions:
    """Decides for each run of one worker."""

    def __init__(
        self, worker: Worker, final: FinalSettlements, run_counts: RunCounts, deferred_tasks: DeferredTasks
    ) -> None:
        self._worker = worker
        self._report = worker.reporter
        self._run_counts = run_counts
        self._redelivery = RedeliveryDelays(duration_ms(worker.redelivery_timeout))
        self._deferred = deferred_tasks
        self._final = final

    # Runs whose body ended

    # twin of: _after_body (decisions.py)
    def succeeded(self, run: Run, seconds: float) -> Settlement:
        """The short path: a plain run that returned None has nothing to decide or to store."""
        execution = run.execution
        self._report.log_success(execution, seconds)
        return run.ends(self._final.completed(run, execution.has_used_progress()), EndingKind.SUCCEEDED)

    async def decide(self, run: Run) -> RunEnd:
        """Decides after any other call."""
        ended = run.ended
        if isinstance(ended, AdmissionBlocked):
            return await self._blocked(run, ended)
        return await self._after_body(run, ended, run.resolved or Resolved())

    # twin of: succeeded (decisions.py)
    async def _after_body(self, run: Run, ended: TaskOutcome, resolved: Resolved) -> RunEnd:
        """Asks the behaviours. If one of them fails, the task is delivered again."""
        try:
            answer = await self._ask_behaviours(run, ended, resolved)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled(run):
                return self._leave_to_others(run, ended.exception)
            return self._deliver_again(run, ended)
        run.execution.epoch = 0
        try:
            settlement = await self._settlement(run, ended, answer)
        except asyncio.CancelledError:
            return self._leave_to_others(run, ended.exception)
        if answer.next_run is None and _ends_chain(resolved.completion_handler):
            settlement = as_chain_end(settlement)
        self._log(run.execution, ended, resolved, answer)
        return run.ends(settlement, _kind_of(ended, resolved, answer), answer.by, ended.exception)

    async def _ask_behaviours(self, run: Run, ended: TaskOutcome, resolved: Resolved) -> Answer:
        execution, by, again = run.execution, "worker", False
        if ended.exception is not None and resolved.failure_handler is not None:
            again = await resolved.failure_handler.handle_failure(execution, ended)
            by = "retry" if again else by
        if not again and resolved.completion_handler is not None:
            again = await resolved.completion_handler.on_complete(execution, ended)
            by = "on_complete"
        next_run = execution.next_run
        is_cut_off = next_run is not None and self._run_counts.is_spent(run.key)
        return Answer(by, again, None if is_cut_off else next_run, is_cut_off)

    def _deliver_again(self, run: Run, ended: TaskOutcome) -> Settlement:
        logger.exception(
            "a behaviour of %s failed after the run; the task will be delivered again", run.execution.call_repr()
        )
        again = requeue(run.key, run.epoch, delay_ms=self._redelivery.next_ms(run.key), begun=True)
        return run.ends(again, EndingKind.INTERRUPTED, error=ended.exception)

    async def _settlement(self, run: Run, ended: TaskOutcome, answer: Answer) -> Settlement:
        has_progress, next_run = run.execution.has_used_progress(), answer.next_run
        if next_run is not None and answer.is_retry:
            return self._with_failure(await self._next(run, next_run), run, ended)
        if next_run is not None:
            ending, state = await self._final.published(run, ended)
            settlement = await self._next(run, next_run)
            return as_going_on(settlement, ending, state, self._worker.name_json, self._worker.now_ms())
        if answer.is_retry:
            return self._final.cancelled(run, SPENT, has_progress)
        if ended.exception is None and ended.result is None:
            return self._final.completed(run, has_progress)
        # A chain that `run_at_most` has cut off would go on, so its task is not dead.
        return await self._final.of(run, ended, has_progress, keep=not answer.is_cut_off)

    def _log(self, execution: Execution, ended: TaskOutcome, resolved: Resolved, answer: Answer) -> None:
        if answer.is_retry and answer.next_run is not None:
            handler = resolved.failure_handler
            attempts = handler.attempts if isinstance(handler, Retry) else None
            self._report.log_retry(execution, ended, answer.next_run, attempts)
        else:
            is_over = answer.is_retry or (answer.next_run is None and not answer.says_again)
            self._report.log_end(execution, ended, not is_over)

    def _with_failure(self, settlement: Settlement, run: Run, ended: TaskOutcome) -> Settlement:
        """Adds the failed attempt, for callers that ask while the task waits for its retry."""
        error, record = ended.exception, run.execution.record
        if error is None or record is None:
            return settlement
        return as_retry(settlement, record.attempt, self._worker.name, self._worker.docket.payloads.error_text(error))

    async def _next(self, run: Run, next_run: NextRun, *, is_delayed: bool = False) -> Settlement:
        payload = await self._final.results.store_call(run, next_run.call)
        return next_run.settlement(run.key, run.epoch, payload=payload, is_delayed=is_delayed)

    # Runs that were not admitted

    def not_admitted(self, run: Run, reason: str, kind: EndingKind = EndingKind.CANCELLED) -> Settlement:
        """The task ends without a run."""
        return run.ends(self._final.not_run(run, reason), kind)

    async def _blocked(self, run: Run, blocked: AdmissionBlocked) -> RunEnd:
        execution = run.execution
        if blocked.handled or blocked.reschedule:
            self._run_counts.take_back(run.key)
        if blocked.handled:
            self._report.blocked(execution, blocked.reason, "it waits")
            if execution.next_run is not None:
                # A user's dependency called `execution.schedule()`. The new time is written with
                # the end of the run.
                return _ends_blocked(run, await self._next(run, execution.next_run, is_delayed=True))
            if isinstance(blocked, SettledByLimit):
                return UnwrittenEnd.CLOSED
            # If the task was replaced or cancelled, this changes nothing. A task for which the
            # dependency did nothing must not stay RUNNING.
            cancelled = as_blocked(self._final.cancelled(run, f"left waiting by {blocked.reason}"), execution.taken)
            return run.ends(cancelled, EndingKind.DROPPED, where=None)
        if blocked.reschedule:
            delay = blocked.retry_delay if blocked.retry_delay is not None else BLOCKED_DELAY
            self._report.blocked(execution, blocked.reason, f"delayed by {delay.total_seconds():g} s")
            delay_ms, attempt = duration_ms(delay), execution.attempt
            return _ends_blocked(
                run, reschedule(run.key, run.epoch, attempt=attempt, delay_ms=delay_ms, is_delayed=True)
            )
        self._report.blocked(execution, blocked.reason, "dropped")
        return await self._dropped(run, blocked)

    async def _dropped(self, run: Run, blocked: AdmissionBlocked) -> Settlement:
        """A dropped task ends. A perpetual task skips only this run."""
        execution = run.execution
        perpetual = governing(plan_for(execution.function), execution, Perpetual)
        if perpetual is not None and not self._run_counts.is_spent(run.key):
            await perpetual.provide(execution, self._worker).on_complete(execution, TaskOutcome(timedelta(0)))
        next_run = execution.next_run
        if next_run is None:
            return _ends_blocked(run, self._final.not_run(run, f"dropped: {blocked.reason}"), EndingKind.DROPPED)
        if next_run.delay is not None:
            next_run.delay = max(next_run.delay, blocked.retry_delay or BLOCKED_DELAY)
        return _ends_blocked(run, await self._next(run, next_run), EndingKind.DROPPED)

    # Runs that were cancelled

    def cancelled(self, run: Run, seconds: float) -> RunEnd:
        """Decides by the source of the cancel. If the worker or the event loop stops the run, the
        task goes to another worker. If a user cancels the task, or the body raises CancelledError
        itself, the task ends."""
        execution, run.seconds = run.execution, seconds
        self._report.over(execution, seconds)
        if run.is_lost or run.reason is CancelReason.SHUTDOWN or (run.reason is None and _is_cancelled(run)):
            return self._leave_to_others(run)
        self._report.cancelled(execution, seconds)
        ended = self._final.cancelled(run, has_progress=execution.has_used_progress())
        return run.ends(ended, EndingKind.CANCELLED)

    def _leave_to_others(self, run: Run, error: BaseException | None = None) -> RunEnd:
        """The body has begun, and another worker runs the task again."""
        if run.is_lost:
            self._report.superseded(run.execution)
            return UnwrittenEnd.GIVEN_UP
        return run.ends(requeue(run.key, run.epoch, begun=True), EndingKind.INTERRUPTED, error=error)

    # Runs that could not begin

    def not_run(self, run: Run) -> Settlement:
        """This worker could not run the task; another worker may."""
        return requeue(run.key, run.epoch, delay_ms=requeue_delay_ms())

    def left_for_others(self, run: Run, error: Exception) -> Settlement:
        """A worker of a newer release, or with other keys, may run the task."""
        self._deferred.note_unreadable(run.key)
        return requeue(run.key, run.epoch, delay_ms=self._deferred.delay_ms(run.key, str(error)))

    def unreadable(self, run: Run, error: Exception) -> Settlement:
        """The task fails and is kept as a dead letter."""
        return run.ends(self._final.unreadable(run, error), EndingKind.UNREADABLE, where=None, error=error)

    def without_function(self, run: Run, error: Exception) -> Settlement:
        """The task fails because no live worker knows its function."""
        return run.ends(self._final.failed(run, error), EndingKind.UNKNOWN_FUNCTION, error=error)


def _ends_blocked(run: Run, settlement: Settlement, kind: EndingKind | None = None) -> Settlement:
    """The body has not begun, so the settlement gives back what the run took of its limits."""
    return run.ends(as_blocked(settlement, run.execution.taken), kind)


def _kind_of(ended: TaskOutcome, resolved: Resolved, answer: Answer) -> EndingKind:
    """How a run ended whose body ended by itself."""
    if answer.is_retry:
        return EndingKind.CANCELLED if answer.is_cut_off else EndingKind.RETRIED
    if ended.exception is None:
        return EndingKind.SUCCEEDED
    runtime = resolved.runtime
    # An exception may have a `__class__` that raises; `isinstance` would read it.
    is_timeout = issubclass(type(ended.exception), TimeoutError)
    is_too_long = is_timeout and isinstance(runtime, Timeout) and runtime.expired()
    return EndingKind.TIMED_OUT if is_too_long else EndingKind.FAILED


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
