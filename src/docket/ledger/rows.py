"""Replies of the ledger: the result of scheduling a task, and the status of a task."""

from __future__ import annotations

from dataclasses import dataclass

from docket.model.states import ExecutionState
from docket.storage.records import FinishedRecord, RunRecord, TaskRecord


@dataclass(slots=True)
class EnqueueResult:
    """The result of scheduling a task."""

    scheduled: bool
    generation: int
    due_ms: float
    state: ExecutionState
    replaced_another: bool = False
    # Nothing was written, because the payload of the call is missing and must be stored again.
    payload_missing: bool = False


@dataclass(slots=True)
class TaskStatus:
    """All records of one task."""

    task: TaskRecord | None = None
    run: RunRecord | None = None
    progress: bytes | None = None
    finished: FinishedRecord | None = None
    # The secret of the docket, for callers that wait for the task.
    secret: bytes | None = None
    # The attempts that failed and were retried.
    failed_attempts: bytes | None = None
