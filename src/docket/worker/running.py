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
    CompletionHandler,
    Perpetual,
    PutAway,
    Resolved,
    TaskOutcome,
    current_docket,
    current_execution,
    current_worker,
    governing,
    plan_for,
)
from docket.errors import UnknownVersion
from docket.execution import Execution
from docket.execution.execution import NextRun, from_record
from docket.instrumentation import is_tracing, mark_failed, run_span
from docket.ledger import (
    Answer,
    Delivery,
    RunEnding,
    Settlement,
    ending_its_chain,
    giving_back,
    hand_back,
    reschedule,
    unknown_function,
)
from docket.model.states import ExecutionState
from docket.model.times import duration_ms, from_ms
from docket.storage.records import STORED_APART, is_stored_apart, read_task

from .calling import call
from .endings import Endings
from .loading import Loader
from .redelivery import RedeliveryDelays
from .reporting import CANCELLED, SUCCEEDED, Tally
from .run_limits import SPENT, RunLimits
from .runs import CancelReason, Run
from .unknown_functions import not_registered

if TYPE_CHECKING:
    from .staff import Staff
    from .worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")

# A task nobody here can run comes back after up to this long, for a worker that can.
LONGEST_HAND_BACK_MS = 500
BLOCKED_DELAY = timedelta(milliseconds=100)


def hand_back_delay_ms() -> float:
    """Never the same: in step with others, two tasks could come to the wrong one of two workers for ever."""
    return random.uniform(LONGEST_HAND_BACK_MS / 10, LONGEST_HAND_BACK_MS)


# Reasons after which a run is not settled as usual: others may have it.
_GIVEN_UP = (CancelReason.LEASE_LOST, CancelReason.CUT_OFF)


def _ends_chain(handler: CompletionHandler[Any] | None) -> bool:
    """Whether the body of an automatic task has said that no run is to follow."""
    return handler is not None and isinstance(handler, Perpetual) and handler.automatic and handler.cancelled


class Runner:
    """Runs deliveries, each in an asyncio task of its own, and settles every one of them."""

    def __init__(self, worker: Worker, staff: Staff) -> None:
        self._worker = worker
        self._docket = worker.docket
        self._functions = worker.docket.tasks
        self._runs = staff.runs
        self._slots = staff.slots
        self._lease = staff.tenure
        self._settler = staff.settler
        self._unknown_functions = staff.unknown_functions
        self._report = worker.reporter
        self._task_prefix = f"{worker.docket.name} - task:"
        self._limits = RunLimits(worker.run_limits)
        # Runs that were given up while the server could not be reached, and whether their body had begun.
        self._given_up: list[tuple[Run, bool]] = []
        self._redelivery = RedeliveryDelays(worker.redelivery_ms)
        self._endings = Endings(worker, staff.write_limits)
        self._run_endings = self._endings.run_endings
        pause = max(worker.reconnection_delay.total_seconds(), 0.05)
        self.loader: Loader = Loader(
            worker.docket.ledger.payloads, staff.slots, self, lambda: staff.tenure.lapsed, worker.labels(), pause
        )
        self._last_claim = 0.0, from_ms(0.0)

    def accept(self, delivery: Delivery) -> Run:
        """From now on it is on the books, begun or not."""
        run = Run(delivery.key, delivery.record, delivery.epoch, delivery.claimed_ms, self._lease.id)
        self._runs.add(run)
        return run

    def begin(self, run: Run) -> bool:
        """Starts it in a slot that the caller has taken for it. False if it was cancelled while it waited: that is settled."""
        if run.reason is not None:
            self.hand_back(run)
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
            # Taken back by the first step: most runs need no callback. An eager task has taken that step already.
            run.task.add_done_callback(never_began)

    def refuse(self, delivery: Delivery) -> None:
        """Gives a delivery back untouched."""
        self.hand_back(self.accept(delivery))

    def hand_back(self, run: Run) -> None:
        """Gives back what has not begun. With the lease it was lost: then there is nothing to write."""
        if run.reason in _GIVEN_UP:
            self._give_up(run, begun=False)
        else:
            self._settle(run, None, hand_back(run.key, run.epoch))

    def hand_back_given_up(self) -> None:
        """The server is reachable again, and the lease is still ours: so are the runs, unless others have replaced them."""
        given_up, self._given_up = self._given_up, []
        for run, begun in given_up:
            self._settle(run, None, hand_back(run.key, run.epoch, begun=begun))

    def forget_given_up(self) -> None:
        """The lease was lost: others have these runs, and nothing is written."""
        given_up, self._given_up = self._given_up, []
        for run, _ in given_up:
            self._close(run)

    def _give_up(self, run: Run, *, begun: bool) -> None:
        if run.reason is CancelReason.LEASE_LOST:
            self._close(run)
        else:
            self._over(run)
            self._given_up.append((run, begun))

    def _never_began(self, run: Run, task: asyncio.Task[None]) -> None:
        """Cancelled before its first step."""
        self.hand_back(run)

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
            if not execution.has_stand_in or await self._is_left_to_us(run, execution):
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
                self._settle(run, None, hand_back(run.key, run.epoch, delay_ms=hand_back_delay_ms()))

    # Open

    def _open(self, run: Run) -> Execution | None:
        """The execution; what cannot be read is that task's failure, what is too new is left for those who know it."""
        try:
            record = read_task(run.record)
            if run.call is not None:
                record.call, record.flags = run.call, record.flags & ~STORED_APART
            execution = from_record(self._docket, run.key, record, self._functions.get(record.function_name))
        except UnknownVersion as error:
            logger.warning("task %r: %s; left for a newer worker", run.key, error)
            self._settle(run, None, hand_back(run.key, run.epoch, delay_ms=hand_back_delay_ms()))
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
        """A task that cannot be read fails, and is kept as a dead letter. One that was replaced meanwhile is nobody's concern."""
        self._over(run)

        def answered(answer: Answer) -> None:
            self._runs.remove(run)
            if answer is Answer.DONE:
                logger.error("task %r cannot be read and is buried: %s", run.key, error)

        settlement = self._endings.failed(run, error, dead_letter=True)
        settlement.worker = run.worker
        self._settler.submit(settlement, answered)

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
        self._settle(run, execution, self._endings.cancelled(run, reason), CANCELLED)
        return True

    async def _is_left_to_us(self, run: Run, execution: Execution) -> bool:
        """A function that is not known here goes to our fallback, if there is one, and else to a worker that knows it."""
        if self._worker.fallback_task is not None:
            execution.run_instead(self._worker.fallback_task)
            return True
        unknown, name = self._unknown_functions, execution.function_name
        settlement = unknown_function(run.key, run.epoch, only_if_known=unknown.has_to_end)
        answer = await self._settled(run, settlement)
        if answer is Answer.KEPT:
            unknown.failed(name)
            error = not_registered(name)
            tally = Tally(TaskOutcome(timedelta(0), None, error))
            self._settle(run, execution, self._endings.failed(run, error), tally)
        else:
            unknown.settled(name, answer)
            self._close(run)
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
                # Most tasks are plain: they are spared the objects of a resolution and a coroutine in between.
                result = await execution.invoke()
            else:
                resolved = Resolved()
                result = await call(self._worker, execution, resolved)
        except AdmissionBlocked as blocked:
            self._report.over(execution, time.perf_counter() - began)
            await self._blocked(run, execution, blocked)
            return None
        except asyncio.CancelledError:
            self._cancelled(run, execution, time.perf_counter() - began)
            return None
        except GeneratorExit as raised:
            if run.reason is CancelReason.SHUTDOWN:
                # It ignored its cancel, and the event loop cannot wait for it.
                self._cancelled(run, execution, time.perf_counter() - began)
                raise
            error = raised
        except BaseException as raised:
            error = raised
        seconds = time.perf_counter() - began
        self._report.over(execution, seconds)
        if resolved is None and error is None and result is None and execution.next_run is None:
            self._complete(run, execution, seconds)
            return None
        outcome = TaskOutcome(timedelta(seconds=seconds), result, error)
        await self._decide(run, execution, resolved or Resolved(), outcome)
        return outcome.exception

    # Decide

    def _complete(self, run: Run, execution: Execution, seconds: float) -> None:
        """A plain run has ended well and has left nothing: there is nothing to decide and nothing to store."""
        self._report.log_success(execution, seconds)
        self._settle(run, execution, self._endings.completed(run, execution.has_used_progress()), SUCCEEDED)

    async def _decide(self, run: Run, execution: Execution, resolved: Resolved, outcome: TaskOutcome) -> None:
        """What follows: a retry, a successor or the end. A behaviour that fails leaves the task for another delivery."""
        retried = again = False
        try:
            if outcome.exception is not None and resolved.failure_handler is not None:
                retried = await resolved.failure_handler.handle_failure(execution, outcome)
            if not retried and resolved.completion_handler is not None:
                again = await resolved.completion_handler.on_complete(execution, outcome)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled(run):
                self._let_go(run, execution)
                return
            logger.exception(
                "a behaviour of %s failed after the run; the task will be delivered again",
                execution.call_repr(),
            )
            delay_ms = self._redelivery.next_ms(run.key)
            self._settle(run, execution, hand_back(run.key, run.epoch, delay_ms=delay_ms, begun=True))
            return
        # The behaviours' word, or `execution.schedule()` of the body where none of them wants another run.
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
            self._let_go(run, execution)
            return
        if next_run is None and _ends_chain(resolved.completion_handler):
            settlement = ending_its_chain(settlement)
        goes_on = next_run is not None
        self._report.log_end(execution, outcome, goes_on or again or (retried and not cut_off))
        tally = Tally(
            None if cancelled else outcome,
            retried=goes_on and retried,
            perpetuated=goes_on and not retried,
            where="retry" if retried else "worker" if resolved.completion_handler is None else "on_complete",
        )
        self._settle(run, execution, settlement, tally)

    def _let_go(self, run: Run, execution: Execution) -> None:
        """Cancelled after its body has ended: what cannot be written is left to others."""
        if run.reason in _GIVEN_UP:
            self._report.superseded(execution)
            self._give_up(run, begun=True)
        else:
            self._settle(run, execution, hand_back(run.key, run.epoch, begun=True))

    async def _next(
        self, run: Run, next_run: NextRun, *, put_off: bool = False, ending: RunEnding | None = None
    ) -> Settlement:
        payload = await self._endings.results.store_call(run, next_run.call)
        return next_run.settlement(run.key, run.epoch, payload=payload, put_off=put_off, ending=ending)

    # What is no ending of the task's own

    async def _blocked(self, run: Run, execution: Execution, blocked: AdmissionBlocked) -> None:
        if blocked.handled or blocked.reschedule:
            self._limits.take_back(run.key)
        if blocked.handled:
            self._report.blocked(execution, blocked.reason, "it waits")
            if execution.next_run is not None:
                # A user's dependency put it away with `execution.schedule()`, which is written down with the run's end.
                self._settle_blocked(run, execution, await self._next(run, execution.next_run, put_off=True))
            elif isinstance(blocked, PutAway):
                self._close(run)
            else:
                # Where it was replaced or cancelled this changes nothing; one that nobody has put away must not stay as running.
                ended = self._endings.cancelled(run, f"put away by {blocked.reason}")
                self._settle(run, None, giving_back(ended, execution.taken))
        elif blocked.reschedule:
            delay = blocked.retry_delay if blocked.retry_delay is not None else BLOCKED_DELAY
            self._report.blocked(execution, blocked.reason, f"put off by {delay.total_seconds():g} s")
            later = reschedule(run.key, run.epoch, attempt=execution.attempt, delay_ms=duration_ms(delay), put_off=True)
            self._settle_blocked(run, execution, later)
        else:
            self._report.blocked(execution, blocked.reason, "dropped")
            await self._drop(run, execution, blocked)

    async def _drop(self, run: Run, execution: Execution, blocked: AdmissionBlocked) -> None:
        """A dropped task ends. One that perpetuates itself skips this run only, and comes back when it may run."""
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
        self, run: Run, execution: Execution, settlement: Settlement, tally: Tally | None = None
    ) -> None:
        """The run has not begun: what it took of its limits is given back with its end."""
        self._settle(run, execution, giving_back(settlement, execution.taken), tally)

    def _cancelled(self, run: Run, execution: Execution, seconds: float) -> None:
        """Sorts a cancel by where it came from: ours (a lost lease, a shutdown, an order), a stranger's, or the body's own."""
        self._report.over(execution, seconds)
        if run.reason in _GIVEN_UP:
            self._report.superseded(execution)
            self._give_up(run, begun=True)
            return
        if run.reason is CancelReason.SHUTDOWN or (run.reason is None and _is_cancelled(run)):
            self._settle(run, execution, hand_back(run.key, run.epoch, begun=True))
            return
        self._report.cancelled(execution, seconds)
        ended = self._endings.cancelled(run, has_progress=execution.has_used_progress())
        self._settle(run, execution, ended, CANCELLED)

    # Settle

    def _settle(
        self, run: Run, execution: Execution | None, settlement: Settlement, tally: Tally | None = None
    ) -> None:
        """Counts only what is written down: the success or failure of a run that no longer counts is nobody's concern."""
        self._over(run)
        if execution is not None:
            # What the body left behind may still hold it: nothing follows this run any more.
            execution.epoch = 0

        def answered(answer: Answer) -> None:
            self._runs.remove(run)
            if execution is None:
                if answer is Answer.CANCELLED:
                    self._report.never_began()
                return
            if answer is Answer.LOST and run.reason not in _GIVEN_UP:
                self._report.superseded(execution, "worker" if tally is None else tally.where)
            elif answer is Answer.CANCELLED:
                self._report.count(execution, CANCELLED)
            elif tally is not None:
                self._report.count(execution, tally)

        settlement.worker = run.worker
        self._settler.submit(settlement, answered)

    async def _settled(self, run: Run, settlement: Settlement) -> Answer:
        """Settles and waits for the answer; the run stays open."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        settlement.worker = run.worker
        self._settler.submit(settlement, lambda answer: None if answered.done() else answered.set_result(answer))
        return await answered

    def _close(self, run: Run) -> None:
        """The run is over and needs no settlement."""
        self._over(run)
        self._runs.remove(run)

    def _over(self, run: Run) -> None:
        """The body is done, so the slot is free; the run stays on the books until its ending is written."""
        run.over = True
        if run.holds_slot:
            run.holds_slot = False
            self._slots.give_back()


def _is_cancelled(run: Run) -> bool:
    """Whether somebody cancels the run. If not, a CancelledError is the word of whoever raised it."""
    if run.reason is not None:
        # A body that was left behind may be torn down when no event loop runs: then there is no current task to ask for.
        return True
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
