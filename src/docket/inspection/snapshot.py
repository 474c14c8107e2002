"""A snapshot of a docket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, cast, overload
from weakref import WeakValueDictionary

from docket.execution import Execution
from docket.ledger import Ledger
from docket.ledger.queries import Query, TaskRow, find_all
from docket.ledger.unknown_functions import UnknownFunction, unknown_functions
from docket.ledger.workers import worker_name
from docket.model.states import ExecutionState
from docket.model.times import from_ms

from .executions import StoredExecution, read_execution

if TYPE_CHECKING:
    from docket.docket import Docket


@dataclass
class WorkerInfo:
    """A live worker: its name, the time when it was last seen, and the tasks that it knows."""

    name: str
    last_seen: datetime
    tasks: set[str]


class RunningExecution(StoredExecution):
    """A running task, with its worker and the time of its start."""

    started: datetime

    def __init__(self, execution: Execution, worker: str, started: datetime) -> None:
        self.__dict__.update(execution.__dict__)
        self.worker: str | None = worker
        self.started = started
        self.started_at: datetime | None = started
        self.state = ExecutionState.RUNNING


@dataclass
class DocketSnapshot:
    """The waiting tasks, the running tasks and the workers of a docket at one moment."""

    taken: datetime
    total_tasks: int
    future: Sequence[Execution]
    running: Sequence[RunningExecution]
    workers: Sequence[WorkerInfo]
    # Functions whose tasks wait for a worker that knows them.
    unknown_functions: Sequence[UnknownFunction] = ()


class WaitingExecutions(Sequence[Execution]):
    """The waiting tasks, in the order of their due times. Each execution is created, and its
    arguments decoded, on first access."""

    def __init__(self, docket: Docket, rows: list[TaskRow]) -> None:
        self._docket = docket
        self._rows = rows
        self._made: WeakValueDictionary[int, Execution] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Execution: ...
    @overload
    def __getitem__(self, index: slice) -> WaitingExecutions: ...
    def __getitem__(self, index: int | slice) -> Execution | WaitingExecutions:
        if isinstance(index, slice):
            return WaitingExecutions(self._docket, self._rows[index])
        position = range(len(self._rows))[index]
        execution = self._made.get(position)
        if execution is None:
            row = self._rows[position]
            execution = self._made[position] = read_execution(self._docket, row.key, row.task)
        return execution

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(cast(Sequence[Any], other))

    __hash__: ClassVar[None] = None  # type: ignore[assignment] - as a list

    def __repr__(self) -> str:
        return f"<{len(self):,} waiting executions>" if len(self) > 10 else repr(list(self))


async def take_snapshot(docket: Docket) -> DocketSnapshot:
    """Reads the docket page by page, so that the server is never blocked. A task that changes its
    state in the meantime appears once, with its last state."""
    taken = docket.now()
    rows: dict[str, TaskRow] = {}
    async for page in find_all(docket.ledger, Query(), with_calls=True):
        rows.update((row.key, row) for row in page)
    waiting = [row for row in rows.values() if row.run is None]
    waiting.sort(key=lambda row: row.due_ms)
    running = [
        RunningExecution(
            read_execution(docket, row.key, row.task), worker_name(row.run.worker), from_ms(row.run.started_ms)
        )
        for row in rows.values()
        if row.run is not None
    ]
    running.sort(key=lambda execution: execution.started)
    future = WaitingExecutions(docket, waiting)
    workers, unknown = await read_workers(docket.ledger), await unknown_functions(docket.ledger)
    return DocketSnapshot(taken, len(rows), future, running, workers, unknown)


async def read_workers(ledger: Ledger, task: str | None = None) -> list[WorkerInfo]:
    """The workers by name. Workers of the same name are combined."""
    found: dict[str, WorkerInfo] = {}
    for row in await ledger.list_workers(task):
        name, seen = worker_name(row.id), from_ms(row.last_seen_ms)
        known = found.get(name)
        if known is None:
            found[name] = WorkerInfo(name, seen, row.tasks)
        else:
            found[name] = WorkerInfo(name, max(seen, known.last_seen), known.tasks | row.tasks)
    return list(found.values())
