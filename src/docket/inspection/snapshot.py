"""All tasks of a docket, or a page of them, with the workers, strikes and pauses."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, cast, overload
from weakref import WeakValueDictionary

from docket.execution import Execution
from docket.execution.context import DocketContext
from docket.ledger import Ledger
from docket.ledger.fleet import FleetRow, worker_name
from docket.ledger.queries import (
    MOST_CALLS,
    CensusRow,
    FoundTask,
    FunctionCount,
    Source,
    TaskQuery,
)
from docket.ledger.tasks import UnknownFunction
from docket.model.states import ExecutionState
from docket.model.times import from_ms
from docket.strikelist.pauses import Pause

from .executions import StoredExecution, read_execution
from .summaries import EndedTask, find_ended


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

    def __init__(self, docket: DocketContext, rows: list[FoundTask]) -> None:
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


async def take_snapshot(docket: DocketContext) -> DocketSnapshot:
    """Reads the docket page by page, so that the server is never blocked. A task that changes its
    state in the meantime appears once, with its last state."""
    taken = docket.now()
    rows: dict[str, FoundTask] = {}
    async for page in docket.ledger.queries.all(with_calls=True):
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
    workers, unknown = await read_workers(docket.ledger), await docket.ledger.tasks.unknown_functions()
    return DocketSnapshot(taken, len(rows), future, running, workers, unknown)


async def read_workers(ledger: Ledger, task: str | None = None) -> list[WorkerInfo]:
    """The workers, or those that know a task, in the order in which their leases end. Workers of
    the same name are combined."""
    found: dict[str, WorkerInfo] = {}
    for row in sorted(await ledger.fleet.workers(), key=_lease):
        if not row.lease_ms or (task is not None and task not in row.functions):
            continue
        name, seen, tasks = worker_name(row.id), from_ms(int(row.last_seen_ms)), set(row.functions)
        known = found.get(name)
        if known is None:
            found[name] = WorkerInfo(name, seen, tasks)
        else:
            found[name] = WorkerInfo(name, max(seen, known.last_seen), known.tasks | tasks)
    return list(found.values())


def _lease(row: FleetRow) -> tuple[float, str]:
    return row.lease_ends_ms, row.id


# The states of a page, in this order. Finished tasks come after them.
STAGES = (ExecutionState.RUNNING, ExecutionState.QUEUED, ExecutionState.SCHEDULED)
_SOURCES = (Source.RUNNING, Source.QUEUED, Source.SCHEDULED)
_MOST_COUNTED = 100_000
# A filter that matches few tasks may read very many. After this time the page has the tasks so far.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class Cursor:
    """The end of a page: its stage, and the position in that stage."""

    stage: int = 0
    within: bytes | None = None

    def text(self) -> str:
        return base64.urlsafe_b64encode(bytes([self.stage]) + (self.within or b"")).decode().rstrip("=")


def read_cursor(text: str) -> Cursor:
    """Raises ValueError if the text is not a cursor."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    if not raw or raw[0] > len(STAGES):
        raise ValueError(f"{text!r} is not a cursor: copy it from the end of the previous page")
    return Cursor(raw[0], raw[1:] or None)


@dataclass
class Listing:
    """About as many tasks as requested, and the cursor of
    the next page. The cursor is None on the last page."""

    tasks: list[FoundTask] = field(default_factory=list[FoundTask])
    ended: list[EndedTask] = field(default_factory=list[EndedTask])
    following: Cursor | None = None

    def __len__(self) -> int:
        return len(self.tasks) + len(self.ended)


def arguments_in_words(task: FoundTask) -> str:
    """The `Logged` arguments on one line, or an empty text. Nothing is decoded."""
    return ", ".join(f"{name}={text}" for name, text in (task.shown_arguments or {}).items())


async def list_tasks(
    ledger: Ledger,
    states: Sequence[ExecutionState],
    limit: int | None,
    *,
    function: str | None = None,
    key_prefix: str | None = None,
    after: Cursor | None = None,
) -> Listing:
    """A page of the tasks in these states, or all of them without a limit: running tasks, then
    queued ones, then scheduled ones, then finished ones."""
    cursor, listing = after or Cursor(), Listing()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    stages = len(STAGES) + (1 if any(state.finished for state in states) else 0)
    while cursor.stage < stages:
        size = max((limit or 500) - len(listing), 1)
        within = None
        if cursor.stage == len(STAGES):
            ended, within = await find_ended(ledger, states, cursor.within, size, function, key_prefix)
            listing.ended += ended
        elif STAGES[cursor.stage] in states:
            within = await _list_stage(ledger, cursor, size, TaskQuery(function, key_prefix), listing.tasks)
        cursor = Cursor(cursor.stage, within) if within is not None else Cursor(cursor.stage + 1)
        if limit is not None and (len(listing) >= limit or time.monotonic() > deadline):
            listing.following = cursor if cursor.stage < stages else None
            break
    return listing


async def _list_stage(ledger: Ledger, at: Cursor, size: int, query: TaskQuery, listed: list[FoundTask]) -> bytes | None:
    """Lists about as many tasks of one state, in the order of their due times, in so many script
    calls at most. Returns where to go on; None at the end."""
    source, found, calls, cursor = _SOURCES[at.stage], list[FoundTask](), 0, None
    async for page in ledger.queries.pages(source, query, at.within, size):
        found += page.tasks
        cursor, calls = page.cursor, calls + 1
        if len(found) >= size or calls == MOST_CALLS:
            break
    if source is Source.SCHEDULED:
        # A record that cannot be read counts as queued, wherever it is.
        found = [task for task in found if task.state is ExecutionState.SCHEDULED]
    listed += sorted(found, key=lambda task: task.due_ms)
    return cursor


@dataclass
class SnapshotView:
    """A docket at one moment, with a page of its tasks. `stats` counts the tasks of each function.
    It is None if it was not requested."""

    taken: datetime
    census: CensusRow
    listing: Listing
    workers: Sequence[WorkerInfo]
    strikes: list[str]
    stats: dict[str, FunctionCount] | None
    unknown: list[UnknownFunction]
    pauses: list[Pause]


async def read_overview(
    docket: DocketContext,
    states: Sequence[ExecutionState],
    limit: int | None,
    *,
    function: str | None = None,
    key_prefix: str | None = None,
    after: Cursor | None = None,
    stats: bool = False,
) -> SnapshotView:
    """Reads a page of about `limit` tasks (all tasks without
    a limit), the counts, the workers, the strikes and the pauses."""
    ledger = docket.ledger
    listing, census, workers, pauses = await asyncio.gather(
        list_tasks(ledger, states, limit, function=function, key_prefix=key_prefix, after=after),
        ledger.queries.census(),
        read_workers(ledger),
        docket.pauses(),
    )
    counts = await ledger.queries.count_by_function() if stats else None
    unknown = await ledger.tasks.unknown_functions() if census.unknown else []
    strikes = sorted(strike.call_repr() for strike in docket.strike_list.in_effect)
    return SnapshotView(from_ms(census.server_ms), census, listing, workers, strikes, counts, unknown, pauses)


async def count_waiting(
    ledger: Ledger, function: str | None = None, key_prefix: str | None = None, state: ExecutionState | None = None
) -> tuple[int, bool]:
    """How many waiting tasks match, and whether the number is exact: it stops at 100,000, which is
    exact enough for a question to a person."""
    if (function, key_prefix, state) == (None, None, None):
        census = await ledger.queries.census()
        return census.unfinished - census.running, True
    count = 0
    async for page in ledger.queries.all(Source.EVERY, TaskQuery(function, key_prefix)):
        count += sum(task.run is None and state in (None, task.state) for task in page)
        if count >= _MOST_COUNTED:
            return count, False
    return count, True
