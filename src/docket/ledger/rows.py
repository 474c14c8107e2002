"""What the ledger answers to those who look: receipts, looks at one task, rows of lists."""

from __future__ import annotations

from dataclasses import dataclass

from docket.model.states import ExecutionState
from docket.storage.records import FinishedRecord, RunRecord, TaskRecord


@dataclass(slots=True)
class EnqueueResult:
    """What became of an order."""

    scheduled: bool
    generation: int
    due_ms: float
    state: ExecutionState
    replaced_another: bool = False
    # Nothing was written: the payload of its call has to be stored again.
    payload_missing: bool = False


@dataclass(slots=True)
class TaskStatus:
    """Everything known of one task."""

    task: TaskRecord | None = None
    run: RunRecord | None = None
    progress: bytes | None = None
    finished: FinishedRecord | None = None


@dataclass(slots=True)
class WorkerRow:
    id: str
    last_seen_ms: float
    tasks: set[str]
