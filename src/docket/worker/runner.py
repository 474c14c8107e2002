"""Sends one delivery through small verbs: open → admit → call → decide → settle."""

from __future__ import annotations

import asyncio
import logging
import random
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
from docket.errors import UnknownVersion
from docket.execution import Execution
from docket.execution.execution import from_record
from docket.instrumentation import is_tracing, mark_failed, run_span
from docket.ledger import (
    Delivery,
    SettleResult,
    requeue,
    unknown_function,
)
from docket.model.states import ExecutionState
from docket.model.times import from_ms
from docket.storage.records import STORED_APART, is_stored_apart, read_task

from .calling import call
from .decisions import Decisions
from .endings import Endings
from .loader import Loader
from .reporter import CANCELLED, RunCounts
from .run_limits import SPENT, RunLimits
from .run_settler import RunSettler
from .runs import CancelReason, Run
from .unknown_functions import not_registered

if TYPE_CHECKING:
    from .staff import Staff
    from .worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")

# A task nobody here can run comes back after up to this long, for a worker that can.
LONGEST_REQUEUE_MS = 500


def requeue_delay_ms() -> float:
    """Never the same: in step with others, two tasks could
    come to the wrong one of two workers for ever."""
    return random.uniform(LONGEST_REQUEUE_MS / 10, LONGEST_REQUEUE_MS)


class Runner:
    """Runs deliveries, each in an asyncio task of its own, and settles every one of them."""

    def __init__(self, worker: Worker, staff: Staff) -> None:
        self._worker = worker
        self._docket = worker.docket
        self._functions = worker.docket.tasks
        self._runs = staff.runs
        self._lease = staff.registration
        self._unknown_functions = staff.unknown_functions
        self._report = worker.reporter
        self._task_prefix = f"{worker.docket.name} - task:"
        self._limits = RunLimits(worker.run_limits)
        self._endings = Endings(worker, staff.write_limits)
        self.run_settler: RunSettler = RunSettler(worker, staff)
        self._decisions = Decisions(worker, self.run_settler, self._endings, self._limits)
        pause = max(worker.reconnection_delay.total_seconds(), 0.05)
        self.loader: Loader = Loader(
            worker.docket.ledger.payloads, staff.slots, self, lambda: staff.registration.lapsed, worker.labels(), pause
        )
        self._last_claim = 0.0, from_ms(0.0)

    def accept(self, delivery: Delivery) -> Run:
        """From now on it is on the books, begun or not."""
        run = Run(delivery.key, delivery.record, delivery.epoch, delivery.claimed_ms, self._lease.id)
        self._runs.add(run)
        return run

    def begin(self, run: Run) -> bool:
        """Starts it in a slot that the caller has taken for it. False if it was cancelled while it
        waited: that is settled."""
        if run.reason is not None:
            self.requeue(run)
            return False
        run.holds_slot = True
        if is_stored_apart(run.record):
            self.loader.add(run)
        else:
            self.start(run)
        return True

    def start(self, run: Run) -> None:
        never_began = partial(self._never_began, run)
        run.task = asyncio.get_running_loop().create_task(self._run(run, never_began), name=self._task_prefix + run.key)
        if not run.begun:
            # Taken back by the first step: most runs need no
            # callback. An eager task has taken that step already.
            run.task.add_done_callback(never_began)

    def refuse(self, delivery: Delivery) -> None:
        """Gives a delivery back untouched."""
        self.requeue(self.accept(delivery))

    def requeue(self, run: Run) -> None:
        """Gives back a run that has not begun."""
        self.run_settler.requeue(run)

    def _never_began(self, run: Run, task: asyncio.Task[None]) -> None:
        """Cancelled before its first step."""
        self.requeue(run)

    async def _run(self, run: Run, never_began: Callable[[asyncio.Task[None]], None]) -> None:
        run.begun = True
        if run.task is None:
            # An eager task takes its first step before its creator has it.
            run.task = asyncio.current_task()
        else:
            run.task.remove_done_callback(never_began)
        try:
            execution = self._open(run)
            if execution is None or self._is_turned_away(run, execution):
                return
            if not execution.is_unregistered or await self._is_left_to_us(run, execution):
                current_execution.set(execution)
                self._limits.begin(run.key)
                self._report.started(execution)
                if is_tracing():
                    await self._call_in_span(run, execution)
                else:
                    await self._call_and_decide(run, execution)
        except (Exception, SystemExit, KeyboardInterrupt):
            logger.exception("task %r could not be run", run.key)
        finally:
            if not run.over:
                self.run_settler.settle(run, None, requeue(run.key, run.epoch, delay_ms=requeue_delay_ms()))

    # Open

    def _open(self, run: Run) -> Execution | None:
        """The execution; what cannot be read is that task's
        failure, what is too new is left for those who know it."""
        try:
            record = read_task(run.record)
            if run.call is not None:
                record.call, record.flags = run.call, record.flags & ~STORED_APART
            execution = from_record(self._docket, run.key, record, self._functions.get(record.function_name))
        except UnknownVersion as error:
            logger.warning("task %r: %s; left for a newer worker", run.key, error)
            self.run_settler.settle(run, None, requeue(run.key, run.epoch, delay_ms=requeue_delay_ms()))
            return None
        except Exception as error:
            self.bury(run, error)
            return None
        execution.epoch = run.epoch
        execution.state, execution.worker = ExecutionState.RUNNING, self._worker.name
        execution.started_at = self._claimed_at(run.claimed_ms)
        return execution

    def _claimed_at(self, ms: float) -> datetime:
        """A batch is claimed at one time, which is converted once."""
        if ms != self._last_claim[0]:
            self._last_claim = ms, from_ms(ms)
        return self._last_claim[1]

    def bury(self, run: Run, error: Exception) -> None:
        """A task that cannot be read fails, and is kept as a dead letter."""
        self.run_settler.bury(run, self._endings.failed(run, error, dead_letter=True), error)

    # Admit

    def _is_turned_away(self, run: Run, execution: Execution) -> bool:
        """Struck, or beyond what run_at_most allows: ended without a run."""
        strikes = self._docket.strike_list
        if not strikes.is_empty and strikes.is_stricken(execution):
            self._report.struck(execution)
            reason = "struck"
        elif self._limits.is_spent(run.key):
            reason = SPENT
        else:
            return False
        self.run_settler.settle(run, execution, self._endings.cancelled(run, reason), CANCELLED)
        return True

    async def _is_left_to_us(self, run: Run, execution: Execution) -> bool:
        """A function that is not known here goes to our fallback,
        if there is one, and else to a worker that knows it."""
        if self._worker.fallback_task is not None:
            execution.run_instead(self._worker.fallback_task)
            return True
        unknown, name = self._unknown_functions, execution.function_name
        settlement = unknown_function(run.key, run.epoch, only_if_known=unknown.has_to_end)
        answer = await self.run_settler.settled(run, settlement)
        if answer is SettleResult.KEPT:
            unknown.failed(name)
            error = not_registered(name)
            counts = RunCounts(TaskOutcome(timedelta(0), None, error))
            self.run_settler.settle(run, execution, self._endings.failed(run, error), counts)
        else:
            unknown.settled(name, answer)
            self.run_settler.close(run)
        return False

    # Call

    def enter_context(self) -> None:
        """Makes docket and worker visible in the context that all runs are started in."""
        current_docket.set(self._docket)
        current_worker.set(self._worker)

    async def _call_in_span(self, run: Run, execution: Execution) -> None:
        attributes = {
            **self._worker.labels(),
            **execution.specific_labels(),
            **self._messaging(run, execution),
        }
        with run_span(execution.function_name, execution.trace_context, attributes) as span:
            error = await self._call_and_decide(run, execution)
            if error is not None:
                mark_failed(span, error)

    def _messaging(self, run: Run, execution: Execution) -> dict[str, str]:
        """OpenTelemetry's own words for what this is."""
        return {
            "code.function.name": execution.function_name,
            "messaging.system": "docket",
            "messaging.operation.type": "process",
            "messaging.destination.name": self._docket.name,
            "messaging.message.id": run.key,
        }

    async def _call_and_decide(self, run: Run, execution: Execution) -> BaseException | None:
        """Calls the function and settles what comes of it; returns the error if it failed."""
        began = time.perf_counter()
        resolved: Resolved | None = None
        result: Any = None
        error: BaseException | None = None
        try:
            if plan_for(execution.function).is_plain and not self._worker.dependencies:
                # Most tasks are plain: they are spared the objects
                # of a resolution and a coroutine in between.
                result = await execution.invoke()
            else:
                resolved = Resolved()
                result = await call(self._worker, execution, resolved)
        except AdmissionBlocked as blocked:
            self._report.over(execution, time.perf_counter() - began)
            await self._decisions.blocked(run, execution, blocked)
            return None
        except asyncio.CancelledError:
            self._decisions.cancelled(run, execution, time.perf_counter() - began)
            return None
        except GeneratorExit as raised:
            if run.reason is CancelReason.SHUTDOWN:
                # It ignored its cancel, and the event loop cannot wait for it.
                self._decisions.cancelled(run, execution, time.perf_counter() - began)
                raise
            error = raised
        except BaseException as raised:
            error = raised
        seconds = time.perf_counter() - began
        self._report.over(execution, seconds)
        if resolved is None and error is None and result is None and execution.next_run is None:
            self._decisions.complete(run, execution, seconds)
            return None
        outcome = TaskOutcome(timedelta(seconds=seconds), result, error)
        await self._decisions.decide(run, execution, resolved or Resolved(), outcome)
        return outcome.exception
