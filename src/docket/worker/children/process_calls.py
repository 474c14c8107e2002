"""Calls a function that declares `Process` in a child. Limits, retries and time-outs stay in the
worker; the child resolves the other dependencies."""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from docket.child.messages import MessageKind, RunRequest, RunResult
from docket.codec.codecs import PICKLE
from docket.codec.error_texts import RemoteTraceback, split_traceback
from docket.dependencies import (
    AdmissionBlocked,
    Plan,
    Process,
    Resolved,
    Timeout,
)
from docket.errors import DocketError, ProcessLost, TaskFailed, Undecodable
from docket.execution import Execution
from docket.instrumentation import PROCESSES_LOST, inject_context, is_tracing
from docket.ledger import ProgressChange
from docket.model.loggers import pass_on
from docket.model.states import ExecutionState
from docket.model.times import to_ms

from .child_runs import ChildCall, NeverBegan, NoChild
from .children import Children

if TYPE_CHECKING:
    from docket.worker.worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")

# How many children are tried for a run, if each one dies before it begins the run.
_CHILDREN_TRIED = 3


@dataclass(frozen=True, slots=True)
class SealedResult:
    """A result that the child has sealed."""

    data: bytes


async def call_in_child(worker: Worker, execution: Execution, resolved: Resolved, plan: Plan) -> Any:
    """Calls the function in a child and returns its result. Limits and behaviours are resolved
    already."""
    assert plan.process is not None
    process = _governing_process(plan, execution, plan.process)
    return await _ProcessCall(worker, execution, resolved, process).call()


def _governing_process(plan: Plan, execution: Execution, declared: Process) -> Process:
    """A caller may pass another Process by keyword."""
    if not execution.kwargs:
        return declared
    passed = next((execution.kwargs.get(name) for name, d in plan.parameters.items() if d is declared), None)
    return passed if isinstance(passed, Process) else declared


class _ProcessCall:
    """One call in a child."""

    def __init__(self, worker: Worker, execution: Execution, resolved: Resolved, process: Process) -> None:
        self._worker = worker
        self._execution = execution
        self._resolved = resolved
        self._process = process
        self._unwritten: ProgressChange | None = None
        self._writing: asyncio.Task[None] | None = None

    async def call(self) -> Any:
        """Calls the function in a child. An idle child may die at any moment, for instance by the
        OOM killer: a run that it has not begun goes to another child."""
        for _ in range(_CHILDREN_TRIED - 1):
            try:
                return await self._call_once()
            except NeverBegan as error:
                logger.warning("%s; another child process runs it", error, extra=self._worker.labels())
        try:
            return await self._call_once()
        except NeverBegan as error:
            raise ProcessLost(*error.args) from None

    async def _call_once(self) -> Any:
        children = self._worker.staff.children
        try:
            result = await self._run(children)
        except NoChild as error:
            raise self._no_child(error) from error
        except ProcessLost:
            PROCESSES_LOST.add(1, {**self._worker.labels(), **self._execution.general_labels()})
            raise
        finally:
            if self._writing is not None:
                await self._writing
        return self._open(result)

    async def _run(self, children: Children) -> RunResult:
        """A `Timeout` begins when a child begins the run. Another runtime decides itself when the
        function is called."""
        runtime = self._resolved.runtime
        if runtime is None:
            return await children.finish(self._begin(children))
        call = self._begin(children) if type(runtime).run is Timeout.run else None
        if call is not None:
            await children.until_begun(call)

        async def body(*args: Any, **kwargs: Any) -> RunResult:
            return await children.finish(call or self._begin(children))

        args = self._execution.args if self._resolved.args is None else self._resolved.args
        kwargs = {**self._execution.kwargs, **self._resolved.values}
        return await runtime.run(self._execution, body, args, kwargs)

    def _begin(self, children: Children) -> ChildCall:
        runtime = self._resolved.runtime
        limit = runtime.remaining().total_seconds() if isinstance(runtime, Timeout) else math.inf
        call = ChildCall(self._execution.function_name, self._process, self._request, self._receive, limit)
        children.begin(call)
        return call

    def _no_child(self, error: NoChild) -> AdmissionBlocked:
        """The system lacks processes or descriptors. That is not the fault of the task: it waits,
        longer each time, until this worker or another one has a child for it."""
        key, reason = self._execution.key, f"no child process can be started: {error}"
        delay_ms = self._worker.staff.deferred_tasks.delay_ms(key, reason)
        return AdmissionBlocked(self._execution, reason, retry_delay=timedelta(milliseconds=delay_ms))

    def _request(self) -> RunRequest:
        execution, runtime = self._execution, self._resolved.runtime
        function: Any = execution.function
        record = execution.record
        assert record is not None
        assert execution.started_at is not None
        # By position, which costs the least.
        return RunRequest(
            function.__module__,
            function.__qualname__,
            execution.function_name,
            execution.key,
            execution.epoch,
            record.call,
            record.due_ms,
            to_ms(execution.started_at),
            execution.attempt,
            execution.generation,
            execution.redelivered,
            runtime.remaining().total_seconds() if isinstance(runtime, Timeout) else None,
            self._process.memory,
            (inject_context() or {}) if is_tracing() else {},
        )

    # Messages of the child

    def _receive(self, kind: MessageKind, fields: list[Any]) -> None:
        if kind is MessageKind.LOG:
            _log(fields[0])
        elif kind is MessageKind.PROGRESS:
            change = ProgressChange(self._execution.key, self._execution.epoch, *fields)
            self._unwritten = change if self._unwritten is None else self._unwritten.then(change)
            if self._writing is None or self._writing.done():
                self._writing = asyncio.get_running_loop().create_task(self._write_progress())
        elif kind is MessageKind.EXTEND and isinstance(self._resolved.runtime, Timeout):
            self._resolved.runtime.extend(timedelta(seconds=fields[0]))

    async def _write_progress(self) -> None:
        """Changes that arrive while one is written are written together."""
        while self._unwritten is not None:
            change, self._unwritten = self._unwritten, None
            try:
                await self._execution.progress.write(change)
            except DocketError as error:
                logger.debug("progress of task %r was not written: %s", self._execution.key, error)

    # The end

    def _open(self, result: RunResult) -> Any:
        if result.behaviours is not None:
            changed, next_run = pickle.loads(result.behaviours)
            for behaviour in changed.values():
                self._resolved.note(behaviour)
            if next_run is not None:
                self._execution.next_run = next_run
        if result.cancelled is not None:
            raise asyncio.CancelledError(result.cancelled)
        if result.error is not None:
            raise _error_of(result, result.error)
        if result.value is None:
            return None
        if self._needs_value():
            execution = self._execution
            return execution.docket.payloads.open_result(
                execution.key, execution.epoch, ExecutionState.COMPLETED, execution.function, result.value
            )
        return SealedResult(result.value)

    def _needs_value(self) -> bool:
        """Handlers of the user's get the result itself. docket's own do not look at it."""
        handlers = (self._resolved.failure_handler, self._resolved.completion_handler)
        return any(
            type(handler).__module__.partition(".")[0] != "docket" for handler in handlers if handler is not None
        )


def _error_of(result: RunResult, pickled: bytes) -> Exception:
    body, shown = split_traceback(pickled)
    try:
        error = PICKLE.decode_error(body)
    except Undecodable:
        # For instance, only the child has the class.
        error = TaskFailed(result.text)
    error.__cause__ = RemoteTraceback(shown or "", result.place, result.text, result.kind)
    return error


def _log(fields: dict[str, Any]) -> None:
    """Passes a log record of the child to the handlers of this process."""
    pass_on(logging.makeLogRecord(fields))
