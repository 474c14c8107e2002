"""Runs one delivery in five steps: open → admit → call → decide → settle."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from docket.dependencies import (
    AdmissionBlocked,
    Resolved,
    TaskOutcome,
    current_docket,
    current_execution,
    current_worker,
    plan_for,
)
from docket.errors import PayloadRefused, UnknownKey, UnknownVersion
from docket.execution.execution import from_record
from docket.instrumentation import is_tracing, mark_failed, run_span
from docket.ledger import SettleResult, unknown_function
from docket.model.states import EndingKind, ExecutionState
from docket.model.times import from_ms
from docket.storage.records import is_stored_apart, read_task
from docket.storage.schema.records import APART
from docket.worker.claiming.deferred_tasks import UnknownFunctions, not_registered
from docket.worker.claiming.loader import Loader
from docket.worker.lease.registration import Registration

from .call import call
from .decisions import SPENT, Decisions, RunCounts
from .pause_rules import Holder, PauseRules
from .runs import CancelReason, Run, RunEnd, Runs, Slots, UnwrittenEnd
from .settlement_writer import RunCloser

if TYPE_CHECKING:
    from docket.worker.worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")


class Runner:
    """Runs deliveries, each in an asyncio task of its own, and settles every one of them."""

    def __init__(
        self,
        worker: Worker,
        registration: Registration,
        runs: Runs,
        slots: Slots,
        decisions: Decisions,
        run_counts: RunCounts,
        closer: RunCloser,
        unknown_functions: UnknownFunctions,
    ) -> None:
        # Runs see the worker as `CurrentWorker`.
        self._worker = worker
        self._docket = worker.docket
        self._functions = worker.docket.tasks
        self._report = worker.reporter
        self._registration = registration
        self._runs = runs
        self._decisions = decisions
        self._run_counts = run_counts
        self._closer = closer
        self._unknown_functions = unknown_functions
        self.pauses: PauseRules = PauseRules(worker.docket, registration)
        self._holder = Holder(self.pauses, closer, decisions, worker.reporter)
        self._task_prefix = f"{worker.docket.name} - task:"
        pause = max(worker.reconnection_delay.total_seconds(), 0.05)
        self.loader: Loader = Loader(
            worker.docket.ledger.payloads, slots, self, lambda: registration.lapsed, worker.labels(), pause
        )
        self._last_claim = 0.0, from_ms(0.0)

    # Before the run

    def requeue(self, run: Run) -> None:
        """Gives back a run that has not begun."""
        self._closer.requeue(run)

    def bury(self, run: Run, error: Exception) -> None:
        """Ends a task whose call cannot be loaded."""
        self._closer.close(run, self._decisions.unreadable(run, error))

    def start(self, run: Run) -> bool:
        """Starts a run in a slot that the caller has taken for it. If the call is stored apart, the
        loader fetches it and comes back. False if the run was cancelled before: then it is
        requeued, and the slot is still the caller's."""
        if run.reason is not None:
            self.requeue(run)
            return False
        run.holds_slot = True
        if run.call is None and is_stored_apart(run.record):
            self.loader.add(run)
            return True
        never_began = partial(self._never_began, run)
        run.task = asyncio.get_running_loop().create_task(self._run(run, never_began), name=self._task_prefix + run.key)
        if not run.begun:
            # The first step removes it again, because most runs need no callback. An eager task has
            # taken that step already.
            run.task.add_done_callback(never_began)
        return True

    def _never_began(self, run: Run, task: asyncio.Task[None]) -> None:
        """The asyncio task was cancelled before its first step."""
        self.requeue(run)

    def enter_context(self) -> None:
        """Makes docket and worker visible in the context in which all runs start."""
        current_docket.set(self._docket)
        current_worker.set(self._worker)

    # The pipe

    async def _run(self, run: Run, never_began: Callable[[asyncio.Task[None]], None]) -> None:
        """Each step either passes the run on or ends it, mostly with a settlement. To close it is
        the last step of every run."""
        run.begun = True
        if run.task is None:
            # An eager task takes its first step before `start` has it.
            run.task = asyncio.current_task()
        else:
            run.task.remove_done_callback(never_began)
        if self._registration.lapsed:
            # The process was paused after `start`, or while a body of the same batch blocked the
            # event loop. Another worker may have the task by now.
            self.requeue(run)
            return
        end: RunEnd | None = None
        try:
            try:
                end = self._open(run) or self._admit(run)
                if end is None and self.pauses.may_match:
                    end = await self._holder.judge(run)
                if end is None and run.execution.is_unregistered:
                    end = await self._find_function(run)
                if end is None:
                    current_execution.set(run.execution)
                    self._report.started(run.execution)
                    if is_tracing():
                        end = await self._call_in_span(run)
                    else:
                        # The short path: `_call` settles a plain run that succeeds.
                        end = await self._call(run) or await self._decisions.decide(run)
            finally:
                self._closer.close(run, end or self._decisions.not_run(run))
        except (Exception, SystemExit, KeyboardInterrupt):
            logger.exception("task %r could not be run", run.key)

    # Open

    def _open(self, run: Run) -> RunEnd | None:
        """Makes the execution. A task that cannot be read fails. A task of a newer release, or with
        a key that this worker does not have, is left for another worker."""
        try:
            record = read_task(run.record)
            if run.call is not None:
                record.call, record.flags = run.call, record.flags & ~APART
            execution = from_record(self._docket, run.key, record, self._functions.get(record.function_name))
        except (UnknownVersion, UnknownKey) as error:
            return self._decisions.left_for_others(run, error)
        except Exception as error:
            if isinstance(error, PayloadRefused):
                self._report.refused(error)
            return self._decisions.unreadable(run, error)
        execution.epoch = run.epoch
        execution.state, execution.worker = ExecutionState.RUNNING, self._worker.name
        execution.started_at = self._claimed_at(run.claimed_ms)
        run.execution = execution
        return None

    def _claimed_at(self, ms: float) -> datetime:
        """All deliveries of a batch have the same time, which is converted once."""
        if ms != self._last_claim[0]:
            self._last_claim = ms, from_ms(ms)
        return self._last_claim[1]

    # Admit

    def _admit(self, run: Run) -> RunEnd | None:
        """Strikes and `run_at_most` may end the task without a run. Limits are asked by `call`,
        because they are dependencies."""
        strikes = self._docket.strike_list
        if not strikes.is_empty and strikes.is_stricken(run.execution):
            self._report.struck(run.execution)
            return self._decisions.not_admitted(run, "struck", EndingKind.STRUCK)
        if self._run_counts.is_spent(run.key):
            return self._decisions.not_admitted(run, SPENT)
        return None

    async def _find_function(self, run: Run) -> RunEnd | None:
        """A task whose function this worker does not know runs the worker's fallback. If there is
        no fallback, the task goes to a worker that knows the function."""
        execution = run.execution
        if self._worker.fallback_task is not None:
            execution.run_instead(self._worker.fallback_task)
            return None
        unknown, name = self._unknown_functions, execution.function_name
        settlement = unknown_function(run.key, run.epoch, only_if_known=unknown.has_to_end)
        answer = await self._closer.settle_and_wait(run, settlement)
        if answer is not SettleResult.KEPT:
            unknown.settled(name, answer)
            return UnwrittenEnd.CLOSED
        unknown.failed(name)
        return self._decisions.without_function(run, not_registered(name))

    # Call

    async def _call(self, run: Run) -> RunEnd | None:
        """Calls the function. A run that succeeds and returns None ends here, unless a behaviour
        must be asked, and so does a cancelled run. For any other run, `decide` finds the result in
        the run."""
        execution, resolved = run.execution, None
        result: Any = None
        error: BaseException | None = None
        self._run_counts.count(run.key)
        began = time.perf_counter()
        try:
            plan = plan_for(execution.function)
            if plan.is_plain and not self._worker.dependencies:
                # plain tasks, twin of: call (call.py)
                # Most tasks are plain. They need no resolution and no coroutine in between.
                result = await plan.body(*execution.args, **execution.kwargs)
            else:
                resolved = Resolved()
                result = await call(self._worker, execution, resolved)
        except AdmissionBlocked as blocked:
            self._report.over(execution, time.perf_counter() - began)
            run.ended = blocked
            return None
        except asyncio.CancelledError:
            return self._decisions.cancelled(run, time.perf_counter() - began)
        except GeneratorExit as raised:
            if run.reason is CancelReason.SHUTDOWN:
                # The body ignored its cancel, and the event loop cannot wait for it.
                return self._decisions.cancelled(run, time.perf_counter() - began)
            error = raised
        except BaseException as raised:
            error = raised
        run.seconds = seconds = time.perf_counter() - began
        self._report.over(execution, seconds)
        if (
            error is None
            and result is None
            and execution.next_run is None
            and (resolved is None or not resolved.has_handlers)
        ):
            return self._decisions.succeeded(run, seconds)
        run.ended, run.resolved = TaskOutcome(timedelta(seconds=seconds), result, error), resolved
        return None

    async def _call_in_span(self, run: Run) -> RunEnd:
        execution = run.execution
        attributes = {
            **self._worker.labels(),
            **execution.specific_labels(),
            # The names of OpenTelemetry's semantic conventions.
            "code.function.name": execution.function_name,
            "messaging.system": "docket",
            "messaging.operation.type": "process",
            "messaging.destination.name": self._docket.name,
            "messaging.message.id": run.key,
        }
        end: RunEnd | None = None
        try:
            with run_span(execution.function_name, execution.trace_context, attributes) as span:
                end = await self._call(run) or await self._decisions.decide(run)
                if run.error is not None:
                    mark_failed(span, run.error)
        except Exception:
            # A span processor of the application may fail when the span ends. The body has run, so
            # its end counts all the same.
            if end is None:
                raise
            logger.exception("the span of task %r could not be ended", run.key)
        return end
