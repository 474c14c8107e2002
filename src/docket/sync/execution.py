"""The handle on a task, for code without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, cast

from docket import __file__ as package_file
from docket.docket import Docket
from docket.errors import WouldDeadlock
from docket.execution import Disposition, ExecutionState, ProgressEvent, StateEvent, TaskFunction
from docket.execution import Execution as AsyncExecution
from docket.execution.execution import Result_co, move_to, wait_for_ending
from docket.ledger import FailedAttempt

from .producer import Producer
from .progress import ExecutionProgress

_WORKER_FOLDER = str(Path(package_file).parent / "worker")


class Execution(Generic[Result_co]):
    """A task: its call, its due time, its state and its progress. The function of an `Execution[R]`
    returns an `R`. The attributes are as of the last call or `sync()`."""

    __slots__ = ("_execution", "_producer", "_progress")

    def __init__(self, producer: Producer, execution: AsyncExecution) -> None:
        self._producer = producer
        self._execution = execution
        self._progress: ExecutionProgress | None = None

    def __repr__(self) -> str:
        return repr(self._execution)

    # The call

    @property
    def key(self) -> str:
        """The key, which is unique among the tasks of the docket."""
        return self._execution.key

    @property
    def function(self) -> TaskFunction:
        """The task function."""
        return self._execution.function

    @property
    def function_name(self) -> str:
        """The name by which workers find the function."""
        return self._execution.function_name

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments."""
        return self._execution.args

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments."""
        return self._execution.kwargs

    def get_argument(self, parameter: str) -> Any:
        """The argument that was passed for a parameter. Raises KeyError if none was."""
        return self._execution.get_argument(parameter)

    # The state

    @property
    def when(self) -> datetime:
        """The due time."""
        return self._execution.when

    @property
    def state(self) -> ExecutionState:
        """The state that was read last."""
        return self._execution.state

    @property
    def is_held(self) -> bool:
        """Whether a pause holds the task, as far as this handle knows (see `sync`)."""
        return self._execution.is_held

    @property
    def attempt(self) -> int:
        """The number of the run among the retries: 1, 2, …"""
        return self._execution.attempt

    @property
    def worker(self) -> str | None:
        """The worker that runs the task, or ran it last."""
        return self._execution.worker

    @property
    def started_at(self) -> datetime | None:
        """When the last run began, as it was read last."""
        return self._execution.started_at

    @property
    def completed_at(self) -> datetime | None:
        """When the task ended, or None."""
        return self._execution.completed_at

    @property
    def error(self) -> str | None:
        """The error of a failed task, as text. While a task waits for a retry, the error of its
        last attempt."""
        return self._execution.error

    @property
    def failed_attempts(self) -> tuple[FailedAttempt, ...]:
        """The attempts that failed and were retried, the oldest first; at most the last ten. As of
        the last `sync()`."""
        return self._execution.failed_attempts

    @property
    def disposition(self) -> Disposition:
        """The result of the call that scheduled the task."""
        return self._execution.disposition

    @property
    def schedule_exception(self) -> BaseException | None:
        """Why `add_many` could not schedule the task."""
        return self._execution.schedule_exception

    @property
    def progress(self) -> ExecutionProgress:
        """The progress of the task, as of the last `sync()`."""
        if self._progress is None:
            self._progress = ExecutionProgress(self._producer, self._execution)
        return self._progress

    def sync(self) -> None:
        """Reads state, times, error and progress from the server."""
        self._producer.run(lambda docket: self._on(docket).sync())

    def get_result(self, *, timeout: timedelta | None = None, deadline: datetime | None = None) -> Result_co:
        """Waits for the task to end and returns its value, or raises its exception.

        The first ending of this task, or of its replacement, after the call counts. Raises
        ExecutionCancelled if the task was cancelled, TimeoutError if it does not end in time,
        ResultExpired if there is no record of it, or no longer one, and WouldDeadlock if a worker
        runs in the event loop that the call would block.
        """
        _check_for_workers()
        ending = self._producer.run(lambda docket: wait_for_ending(self._on(docket), timeout, deadline))
        # Decoded here: a user's type may belong to the thread of the caller.
        return cast(Result_co, ending.open(self._execution.docket, self._execution.function))

    def subscribe(self) -> Iterator[StateEvent | ProgressEvent]:
        """The present state and progress, then every event until the task has ended."""
        return self._producer.watch(self.key)

    def _on(self, docket: Docket) -> AsyncExecution:
        move_to(self._execution, docket)
        return self._execution


def _check_for_workers() -> None:
    """Refuses to block an event loop in which a worker runs: the task that the caller waits for may
    be this worker's."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    for task in asyncio.all_tasks(loop):
        code = getattr(task.get_coro(), "cr_code", None)
        if code is not None and code.co_filename.startswith(_WORKER_FOLDER):
            raise WouldDeadlock(
                "get_result() of a sync docket would block the event loop of this thread, in which a worker runs, so "
                "no task could end: use the async Docket in coroutines, or run the worker in another thread or process"
            )
