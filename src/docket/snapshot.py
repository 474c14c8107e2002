"""What a docket holds at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from docket.execution import Execution, TaskFunction
from docket.execution.context import TaskHome
from docket.execution.execution import from_record, unknown_function
from docket.ledger import Ledger, PageRow
from docket.ledger.ledger import worker_name
from docket.model.errors import Undecodable
from docket.model.states import ExecutionState
from docket.model.times import from_ms


@dataclass
class WorkerInfo:
    """A worker that runs now, when it was last seen and which tasks it knows."""

    name: str
    last_seen: datetime
    tasks: set[str]


class RunningExecution(Execution):
    """A task that runs: where, and since when."""

    worker: str
    started: datetime

    def __init__(self, execution: Execution, worker: str, started: datetime) -> None:
        self.__dict__.update(execution.__dict__)
        self.worker = worker
        self.started = started
        self.started_at = started
        self.state = ExecutionState.RUNNING


@dataclass
class DocketSnapshot:
    """What waits, what runs and who works, at one moment."""

    taken: datetime
    total_tasks: int
    future: Sequence[Execution]
    running: Sequence[RunningExecution]
    workers: Sequence[WorkerInfo]


class Holder(TaskHome, Protocol):
    @property
    def tasks(self) -> Mapping[str, TaskFunction]: ...


async def take_snapshot(docket: Holder) -> DocketSnapshot:
    """Reads in pages, so the server is never held up; a task that moves meanwhile is shown once, as last seen."""
    taken = datetime.now(UTC)
    rows: dict[str, PageRow] = {}
    async for page in docket.ledger.pages(with_calls=True):
        rows.update((row.key, row) for row in page)
    future: list[Execution] = []
    running: list[RunningExecution] = []
    for row in rows.values():
        execution = _execution(docket, row)
        if row.run is None:
            future.append(execution)
        else:
            running.append(RunningExecution(execution, worker_name(row.run.worker), from_ms(row.run.started_ms)))
    future.sort(key=lambda execution: execution.when)
    running.sort(key=lambda execution: execution.started)
    return DocketSnapshot(taken, len(rows), future, running, await read_workers(docket.ledger))


def _execution(docket: Holder, row: PageRow) -> Execution:
    function: Any = docket.tasks.get(row.task.function_name)
    try:
        return from_record(docket, row.key, row.task, function)
    except Undecodable:
        execution = Execution(
            docket,
            function or unknown_function,
            (),
            {},
            row.key,
            from_ms(row.task.due_ms),
            function_name=row.task.function_name,
        )
        execution.apply_task(row.task)
        return execution


async def read_workers(ledger: Ledger, task: str | None = None) -> list[WorkerInfo]:
    """Workers by name; two of one name are shown as one."""
    found: dict[str, WorkerInfo] = {}
    for row in await ledger.roster(task):
        name, seen = worker_name(row.id), from_ms(row.last_seen_ms)
        known = found.get(name)
        if known is None:
            found[name] = WorkerInfo(name, seen, row.tasks)
        else:
            found[name] = WorkerInfo(name, max(seen, known.last_seen), known.tasks | row.tasks)
    return list(found.values())
