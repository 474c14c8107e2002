"""The handle on a task, for its producer, its worker and its watchers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from uncalled_for import get_signature

from docket.errors import Undecodable, UnknownVersion, Unserializable
from docket.ledger import (
    FailedAttempt,
    Settlement,
    Taken,
    TaskStatus,
    read_ending,
    read_failed_attempts,
    reschedule,
)
from docket.ledger.endings import ELSEWHERE
from docket.ledger.fleet import worker_name
from docket.ledger.payloads import Payload
from docket.model.states import Disposition, ExecutionState
from docket.model.times import duration_ms, from_ms, to_ms
from docket.storage.records import FinishedRecord, TaskRecord
from docket.storage.schema.locations import SCHEDULED
from docket.storage.schema.records import APART, RECORD_VERSION
from docket.storage.schema.requests import AddOptions

from .arguments import functions_with_logged, show_arguments_of, show_call
from .context import DocketContext
from .functions import SyncCaller, unregistered_function
from .manual_runs import end_manual_run
from .progress import ExecutionProgress, ProgressEvent, read_progress
from .stored_results import StoredEnding, fetch_ending
from .task_call import GIVEN, KeyUse, TaskFunction
from .waiting import StateEvent, seconds_to_wait, wait_finished, watch

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from docket.docket import Docket

    Result_co = TypeVarWithDefault("Result_co", covariant=True, default=Any)
else:
    # Type checkers alone need the default, which `typing` has from Python 3.13 on.
    Result_co = TypeVar("Result_co", covariant=True)


@dataclass(slots=True)
class NextRun:
    """The next run of a task. A behaviour decides it,
    and the settlement of the current run stores it."""

    attempt: int
    delay: timedelta | None = None
    when: datetime | None = None
    function_name: str | None = None
    call: bytes | None = None

    def in_words(self) -> str:
        """When it begins, for a log: "at once", "in 2 s", "at 2026-01-31T12:00:00+00:00"."""
        if self.when is not None:
            return f"at {self.when.isoformat(timespec='seconds')}"
        seconds = self.delay.total_seconds() if self.delay is not None else 0.0
        if seconds <= 0:
            return "at once"
        if seconds < 1:
            return f"in {seconds * 1000:.3g} ms"
        return f"in {seconds:.3g} s" if seconds < 100 else f"in {round(seconds):,} s"

    def settlement(
        self,
        key: str,
        epoch: int,
        *,
        payload: Payload | None = None,
        is_delayed: bool = False,
    ) -> Settlement:
        """The settlement that ends the current run and schedules this one. `payload`: the call,
        stored apart. `is_delayed`: the current run has not begun, so the next run belongs to the
        same submission."""
        return reschedule(
            key,
            epoch,
            attempt=self.attempt,
            delay_ms=duration_ms(self.delay) if self.delay is not None else 0,
            due_ms=to_ms(self.when) if self.when is not None else None,
            function_name=self.function_name,
            call=self.call,
            payload=payload,
            is_delayed=is_delayed,
        )


class Execution(Generic[Result_co]):
    """A task: its call, its due time, its state and its progress. The function of an `Execution[R]`
    returns an `R`."""

    # Defaults on the class: most executions never change these.
    taken: Sequence[Taken] = ()
    state: ExecutionState = ExecutionState.SCHEDULED
    record: TaskRecord | None = None
    worker: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error: str | None = None
    # The attempts that failed and were retried, the oldest first; at most the last ten.
    failed_attempts: tuple[FailedAttempt, ...] = ()
    result_key: str | None = None
    disposition: Disposition = Disposition.LOADED
    schedule_exception: BaseException | None = None
    epoch: int = 0
    key_use: KeyUse = GIVEN
    # Stored under a key that docket generated, and confirmed by no replica.
    is_unconfirmed: bool = False
    seed: bool = False
    is_unregistered: bool = False
    next_run: NextRun | None = None
    # The call as text and the labels of the run, from the log line about its start.
    start_line: tuple[str, dict[str, Any]] | None = None
    _progress: ExecutionProgress | None = None
    # The options that the caller gave to `add` besides the time and the key.
    _options: AddOptions | None = None

    def __init__(
        self,
        docket: DocketContext,
        function: TaskFunction,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str,
        when: datetime,
        attempt: int = 1,
        trace_context: Any = None,
        redelivered: bool = False,
        function_name: str | None = None,
        generation: int = 0,
        message_id: str | None = None,
    ) -> None:
        self._docket = docket
        self._function = function
        self._function_name = function_name or function.__name__
        self._args = args
        self._kwargs = kwargs
        self._key = key
        self.when: datetime = when
        self.attempt: int = attempt
        self.trace_context = trace_context
        self.redelivered: bool = redelivered
        self.generation: int = generation
        self._message_id = message_id

    # The task itself: setting its key would only make the object refer to another task.

    if TYPE_CHECKING:

        @property
        def docket(self) -> Docket: ...

        @property
        def function(self) -> TaskFunction: ...

        @property
        def function_name(self) -> str: ...

        @property
        def args(self) -> tuple[Any, ...]: ...

        @property
        def kwargs(self) -> dict[str, Any]: ...

        @property
        def key(self) -> str: ...

    else:
        # These are read for every task. attrgetter halves the cost of a Python function.
        docket = property(attrgetter("_docket"), doc="The docket of the task.")
        function = property(attrgetter("_function"), doc="The task function.")
        function_name = property(attrgetter("_function_name"), doc="The name by which workers find the function.")
        args = property(attrgetter("_args"), doc="The positional arguments.")
        kwargs = property(attrgetter("_kwargs"), doc="The keyword arguments.")
        key = property(attrgetter("_key"), doc="The key, which is unique among the tasks of the docket.")

    @property
    def message_id(self) -> str | None:
        """The id of the task's stream entry, if it has one."""
        if self._message_id is None and self.record is not None and not self.record.is_held:
            return self.record.entry
        return self._message_id

    @message_id.setter
    def message_id(self, id: str | None) -> None:
        self._message_id = id

    @property
    def is_held(self) -> bool:
        """Whether a pause holds the task, as far as this handle knows (see `sync`). Its state is
        QUEUED."""
        return self.state is ExecutionState.QUEUED and self.record is not None and self.record.is_held

    def __repr__(self) -> str:
        return f"<Execution {self.function_name} {self.key!r} {self.state.value}>"

    @property
    def progress(self) -> ExecutionProgress:
        """The progress of the task: read it, write it, follow it."""
        if self._progress is None:
            self._progress = ExecutionProgress(self.docket, self.key, self.epoch)
        return self._progress

    def serve_progress(self, caller: SyncCaller) -> None:
        """The function is plain. Its progress is written by calls, in any thread."""
        if self._progress is not None:
            self._progress.caller = caller

    def has_used_progress(self) -> bool:
        """Somebody has read or written the progress."""
        return self._progress is not None and self._progress.used

    # Scheduling

    async def schedule(self, replace: bool = False) -> Disposition:
        """Schedules this task at `when`. Returns whether it was scheduled.

        A running task that calls this schedules its own next run, whether the present run succeeds
        or fails. A retry, or the next run of a perpetual task, takes precedence. docket writes the
        next run together with the end of the present one, so there is never a moment with two runs
        or with none.
        """
        if self.epoch:
            self.next_run = NextRun(self.attempt, when=self.when, function_name=self.function_name, call=self.encode())
            self.disposition = Disposition.SCHEDULED
        else:
            await self.docket.schedule(self, replace=replace)
        return self.disposition

    def run_again(
        self,
        *,
        attempt: int,
        delay: timedelta | None = None,
        when: datetime | None = None,
        arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
    ) -> None:
        """Sets the next run of this task: after a delay by the server's clock, or at a time; with
        the same arguments or with others."""
        self.next_run = NextRun(attempt, delay, when)
        if arguments is not None:
            self._args, self._kwargs = arguments
            self.next_run.function_name, self.next_run.call = self._function_name, self.encode()
        elif self._docket.payloads.reads_others:
            self._renew_call(self.next_run)

    def _renew_call(self, next_run: NextRun) -> None:
        """Seals a call again that has an earlier key or another codec. A perpetual task would need
        its first key for ever otherwise."""
        if self.record is not None and self._docket.payloads.is_outdated(self.record.call):
            # The codec of today may not be able to encode what an earlier one could.
            with contextlib.suppress(Unserializable):
                next_run.function_name, next_run.call = self._function_name, self.encode()

    def run_instead(self, function: TaskFunction) -> None:
        """Runs another function, the worker's fallback, if the worker does not know this one."""
        self._function = function

    def encode(self) -> bytes:
        """The sealed call, as it is stored."""
        try:
            shown = show_arguments_of(self) if self._function in functions_with_logged else None
            return self._docket.payloads.seal_call(
                self._key, self._function_name, self._function, self._args, self._kwargs, self.trace_context, shown
            )
        except Unserializable as error:
            raise Unserializable(f"{self.function_name}: {error}") from error.__cause__

    # Manual runs

    async def claim(self, worker: str) -> bool:
        """Marks the waiting task as running: the caller runs it, not a worker. False if the task
        does not wait.

        docket renews the lease of the run while this docket is open. If the process dies, docket
        puts the task back. End the run with `mark_as_completed`, `mark_as_failed` or
        `mark_as_cancelled`.
        """
        started_ms, epoch = await self.docket.manual_runs.claim(self.key, worker)
        if not epoch:
            return False
        self.epoch, self._progress, self.next_run = epoch, None, None
        self.state, self.worker, self.started_at = ExecutionState.RUNNING, worker, from_ms(started_ms)
        return True

    async def mark_as_completed(self, result_key: str | None = None) -> None:
        """Ends a manual run. Raises LeaseLost if the run no longer counts; then nothing is
        written."""
        await end_manual_run(self, ExecutionState.COMPLETED, result_key=result_key)

    async def mark_as_failed(self, error: str | None = None, result_key: str | None = None) -> None:
        """Ends a manual run with an error. Raises the same errors as `mark_as_completed`."""
        await end_manual_run(self, ExecutionState.FAILED, error, result_key)

    async def mark_as_cancelled(self) -> None:
        """Ends a manual run as cancelled. Raises the same errors as `mark_as_completed`."""
        await end_manual_run(self, ExecutionState.CANCELLED)

    # Queries

    async def sync(self) -> None:
        """Reads state, times, error, failed attempts and progress from the server."""
        self.apply(await self.docket.ledger.tasks.get(self.key))

    async def is_superseded(self) -> bool:
        """Whether this task has been replaced. Then this run no longer counts."""
        status = await self.docket.ledger.tasks.get(self.key)
        if self.epoch:
            return status.run is None or status.run.epoch != self.epoch
        return status.task is not None and status.task.generation > self.generation

    def subscribe(self, ready: asyncio.Event | None = None) -> AsyncGenerator[StateEvent | ProgressEvent]:
        """The present state and progress, then every event. No event in between is missed."""
        return watch(self.docket, self.key, ready)

    async def get_result(self, *, timeout: timedelta | None = None, deadline: datetime | None = None) -> Result_co:
        """Waits for the task to end and returns its value, or raises its exception.

        The first ending of this task, or of its replacement, after the call counts; an earlier task
        of the same key does not count. For a `Perpetual` or `Cron` task that is the end of its next
        run. Raises ExecutionCancelled if the task was cancelled, TimeoutError if it does not end in
        time, and ResultExpired if its record does not exist or has expired.
        """
        return (await wait_for_ending(self, timeout, deadline)).open(self.docket, self.function)

    def apply(self, look: TaskStatus) -> None:
        """Takes over what the server says about the task."""
        stored = look.progress or (look.finished.progress if look.finished else None)
        self.progress.apply(read_progress(stored) if stored else {})
        self.failed_attempts = read_failed_attempts(look.failed_attempts)
        if look.finished is not None:
            self._apply_finished(look.finished)
        elif look.task is not None:
            self.apply_task(look.task)
            if look.run is None:
                self.error = self.failed_attempts[-1].error if self.failed_attempts else None
            else:
                self.state = ExecutionState.RUNNING
                self.worker, self.started_at = worker_name(look.run.worker), from_ms(look.run.started_ms)

    def apply_task(self, task: TaskRecord) -> None:
        """Takes over what a task record says."""
        self.state, self.when, self.attempt = task.state, from_ms(task.due_ms), task.attempt
        self.generation, self.record = task.generation, task
        self.redelivered = task.redelivered
        self.worker = self.started_at = self.completed_at = self.error = self.result_key = None

    def _apply_finished(self, record: FinishedRecord) -> None:
        self.apply_task(record.task)
        ending = read_ending(record.tail)
        self.state, self.worker, self.error = record.state, ending.worker, ending.error
        self.started_at = from_ms(record.started_ms) if record.started_ms else None
        self.completed_at = from_ms(record.completed_ms)
        if ending.kind != 0:
            self.result_key = ending.payload.decode() if ending.kind == ELSEWHERE else self.key

    # Display

    def get_argument(self, parameter: str) -> Any:
        """The argument that was passed for a parameter. Raises KeyError if none was."""
        return get_signature(self.function).bind_partial(*self.args, **self.kwargs).arguments[parameter]

    def call_repr(self) -> str:
        """`name(args…){key}`, with only `Logged` arguments shown."""
        return show_call(self.function, self.function_name, self.args, self.kwargs, self.key)

    def general_labels(self) -> dict[str, str]:
        """Labels with few values, for metrics."""
        return {"docket.task": self.function_name}

    def specific_labels(self) -> dict[str, str | int]:
        """Labels of this one task, for logs and spans."""
        return {
            "docket.task": self.function_name,
            "docket.key": self.key,
            "docket.when": self.when.isoformat(),
            "docket.attempt": self.attempt,
        }


def from_record(docket: DocketContext, key: str, task: TaskRecord, function: TaskFunction | None) -> Execution:
    """The execution of a task record. Raises Undecodable if its arguments cannot be read."""
    if task.version != RECORD_VERSION:
        raise UnknownVersion(f"task record of version {task.version}; this release reads version {RECORD_VERSION}")
    if task.flags & APART:
        raise Undecodable("the arguments are stored apart and were not read")
    args, kwargs, trace_context = docket.payloads.open_call(key, task.function_name, function, task.call)
    # Every run begins here. Arguments by position, and
    # fields instead of properties, cost the least.
    execution = Execution(
        docket,
        function or unregistered_function(task.function_name),
        args,
        kwargs,
        key,
        from_ms(task.due_ms),
        task.attempt,
        trace_context,
        task.has_begun or task.losses > 0,
        task.function_name,
        task.generation,
    )
    execution.record = task
    if task.location != SCHEDULED:
        execution.state = ExecutionState.QUEUED
    if function is None:
        execution.is_unregistered = True
    return execution


async def wait_for_ending(
    execution: Execution[Any], timeout: timedelta | None, deadline: datetime | None
) -> StoredEnding:
    """Waits as `get_result`, and leaves it to the caller to decode the value."""
    docket, key = execution.docket, execution.key
    seconds = seconds_to_wait(docket, timeout, deadline)
    waiting = execution.state in (ExecutionState.QUEUED, ExecutionState.RUNNING)
    record = await wait_finished(docket, key, seconds, generation=execution.generation, expect_to_wait=waiting)
    execution._apply_finished(record)  # pyright: ignore[reportPrivateUsage] - a part of get_result
    return await fetch_ending(docket, key, record)


def move_to(execution: Execution[Any], docket: Docket) -> None:
    """The execution goes on with another opening of its docket: it may outlive the one that it was
    made with, or the process."""
    if execution.docket is not docket:
        execution._docket = docket  # pyright: ignore[reportPrivateUsage] - users do not move executions
        execution.progress.docket = docket
