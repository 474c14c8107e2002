"""Executions of stored tasks. A task that cannot be
decoded in this process still has an execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docket.errors import Undecodable
from docket.execution import Execution
from docket.execution.execution import from_record
from docket.execution.unregistered import unregistered_function
from docket.model.times import from_ms
from docket.storage.records import TaskRecord

if TYPE_CHECKING:
    from docket.docket import Docket


def read_execution(docket: Docket, key: str, task: TaskRecord) -> Execution:
    """The execution of a task record. If the arguments cannot be decoded, the execution has no
    arguments, and `schedule_exception` is the error."""
    try:
        return from_record(docket, key, task, docket.tasks.get(task.function_name))
    except Undecodable as error:
        return _undecodable(docket, key, task, error)


async def find_execution(docket: Docket, key: str) -> Execution[Any] | None:
    """The task of that key, finished or not, or None."""
    status = await docket.ledger.get(key)
    task = status.task or (status.finished.task if status.finished else None)
    if task is None:
        return None
    try:
        await docket.ledger.payloads.complete(task)
        execution = from_record(docket, key, task, docket.tasks.get(task.function_name))
    except Undecodable as error:
        execution = _undecodable(docket, key, task, error)
    execution.apply(status)
    return execution


def _undecodable(docket: Docket, key: str, task: TaskRecord, error: Undecodable) -> Execution:
    name, due = task.function_name, from_ms(task.due_ms)
    execution = Execution(
        docket, docket.tasks.get(name) or unregistered_function(name), (), {}, key, due, function_name=name
    )
    execution.apply_task(task)
    execution.schedule_exception = error
    return execution
