"""The workers of a docket, how they are, and what they run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from docket.execution.context import DocketContext
from docket.execution.progress import read_progress
from docket.ledger.fleet import WorkerReport, worker_name
from docket.ledger.queries import FoundTask, Source, TaskQuery
from docket.model.times import from_ms

from .task import TaskProgress, as_progress

# The most runs that one read names. More are only counted.
MOST_RUNS = 2_000
_READ_AT_ONCE = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerView:
    """A worker that has a lease. `report` is None for a worker of an older release, and for the
    first seconds of a worker."""

    id: str
    name: str
    last_seen: datetime
    lease_ends: datetime
    is_leader: bool
    is_deputy: bool
    is_stopping: bool
    functions: tuple[str, ...]
    report: WorkerReport | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningTask:
    """A run, and the worker that has it. `worker_id` is that of `WorkerView`."""

    key: str
    function: str
    worker: str
    worker_id: str
    epoch: int
    started_at: datetime
    attempt: int
    is_cancel_requested: bool
    progress: TaskProgress | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningTasks:
    """The runs, the oldest first. If `is_complete` is False there are more."""

    runs: tuple[RunningTask, ...]
    is_complete: bool

    def of(self, worker_id: str) -> tuple[RunningTask, ...]:
        """The runs of one worker."""
        return tuple(run for run in self.runs if run.worker_id == worker_id)


async def read_worker_views(docket: DocketContext) -> tuple[WorkerView, ...]:
    """The workers that have a lease, by name."""
    found = [
        WorkerView(
            id=row.id,
            name=worker_name(row.id) or row.id,
            last_seen=from_ms(row.last_seen_ms),
            lease_ends=from_ms(row.lease_ends_ms),
            is_leader=row.is_leader,
            is_deputy=row.is_deputy,
            is_stopping=row.is_stopping,
            functions=row.functions,
            report=row.report,
        )
        for row in await docket.ledger.fleet.workers()
    ]
    return tuple(sorted(found, key=lambda worker: (worker.name, worker.id)))


async def read_running(docket: DocketContext, *, worker: str | None = None, most: int = MOST_RUNS) -> RunningTasks:
    """The runs under way, on all workers or on those of one name."""
    found: list[FoundTask] = []
    cursor: bytes | None = None
    while True:
        query = TaskQuery(worker=worker)
        page = await docket.ledger.queries.find(Source.RUNNING, query, cursor, _READ_AT_ONCE, _READ_AT_ONCE)
        found += page.tasks
        cursor = page.cursor
        if cursor is None or len(found) >= most:
            break
    runs = sorted((_running(task) for task in found), key=lambda run: (run.started_at, run.key))
    return RunningTasks(runs=tuple(runs[:most]), is_complete=cursor is None and len(runs) <= most)


def _running(found: FoundTask) -> RunningTask:
    run = found.run
    assert run is not None
    return RunningTask(
        key=found.key,
        function=found.task.function_name,
        worker=worker_name(run.worker) or run.worker,
        worker_id=run.worker,
        epoch=run.epoch,
        started_at=from_ms(run.started_ms),
        attempt=found.task.attempt,
        is_cancel_requested=run.cancel_asked,
        progress=as_progress(read_progress(found.note)) if found.note else None,
    )
