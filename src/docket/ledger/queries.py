"""Queries about many tasks, answered page by page, so that no request blocks the server for more
than a few milliseconds."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from docket.codec.call_headers import shown_arguments
from docket.model.states import STATE_NUMBERS, ExecutionState
from docket.storage.keys import bytes_text, segment, text_bytes
from docket.storage.records import (
    STORED_APART,
    FinishedHead,
    RunRecord,
    TaskRecord,
    is_stored_apart,
    read_due,
    read_finished_head,
    read_run,
    read_task,
)

from .ledger import Ledger

# The most tasks that one script call reads, and roughly
# the most bytes, because arguments may be large.
_MOST_TASKS = 500
_BYTES = 256 * 1024
_FIRST_COUNT = 8
_SAMPLED_AT_ONCE = 250
# The most keys of the server that one script call looks at.
MOST_KEYS = 500
# The most script calls for one page. A filter that matches
# few tasks returns the tasks so far, and a cursor.
MOST_CALLS = 20
_STATES = {ExecutionState.SCHEDULED: 0, ExecutionState.QUEUED: 1, ExecutionState.RUNNING: 2}


@dataclass(frozen=True, slots=True)
class Query:
    """Selects unfinished tasks. Fields that are not given
    match every task. `due_before_ms` is exclusive."""

    state: ExecutionState | None = None
    function: str | None = None
    key_prefix: str | None = None
    due_from_ms: float = -math.inf
    due_before_ms: float = math.inf

    def __post_init__(self) -> None:
        if self.state is not None and self.state.finished:
            raise ValueError(f"state {self.state.value}: a query is about unfinished tasks; see find_finished")

    @property
    def filter(self) -> list[Any] | bool:
        """The query in the scripts' format. False if it matches every task."""
        if self == _EVERYTHING:
            return False
        return [
            -1 if self.state is None else _STATES[self.state],
            False if self.function is None else text_bytes(self.function),
            False if self.key_prefix is None else text_bytes(self.key_prefix),
            self.due_from_ms,
            self.due_before_ms,
        ]


_EVERYTHING = Query()


@dataclass(slots=True)
class TaskRow:
    """An unfinished task as it is stored. The record has
    no arguments unless the caller asked for them."""

    key: str
    record: bytes
    size: int
    run: RunRecord | None
    # The arguments, if they are stored apart and were fetched.
    call: bytes | None = None
    # The beginning of the call, if the caller did not ask for the arguments.
    headers: bytes | None = None

    @property
    def shown_arguments(self) -> dict[str, str] | None:
        """The `Logged` arguments as text, by parameter. Nothing is decoded."""
        if self.headers is not None:
            return shown_arguments(self.headers)
        task = self.task
        return None if task.flags & STORED_APART else shown_arguments(task.call)

    @property
    def task(self) -> TaskRecord:
        task = read_task(self.record)
        if self.call is not None:
            task.call, task.flags = self.call, task.flags & ~STORED_APART
        return task

    @property
    def due_ms(self) -> float:
        return read_due(self.record)

    @property
    def call_size(self) -> int:
        """The size of the arguments in bytes."""
        return self.task.call_size or self.size

    @property
    def is_held(self) -> bool:
        """Whether a pause holds the task."""
        return self.run is None and self.task.is_held

    @property
    def state(self) -> ExecutionState:
        return ExecutionState.RUNNING if self.run is not None else self.task.state


@dataclass(slots=True)
class Page:
    """About as many tasks as requested, and the cursor of
    the next page. The cursor is None on the last page."""

    rows: list[TaskRow]
    cursor: bytes | None


@dataclass(slots=True)
class FinishedRow:
    key: str
    head: FinishedHead
    size: int


@dataclass(slots=True)
class FinishedPage:
    rows: list[FinishedRow]
    cursor: bytes | None


@dataclass(slots=True)
class FunctionCount:
    """The number of unfinished tasks of one function by state, and the earliest due time. `held`
    tasks count as queued, too."""

    scheduled: int = 0
    queued: int = 0
    running: int = 0
    earliest_due_ms: float = field(default=math.inf)
    held: int = 0


async def find(
    ledger: Ledger, query: Query, cursor: bytes | None = None, size: int = 100, *, with_calls: bool = False
) -> Page:
    """A page of the matching tasks. Scheduled tasks are in
    the order of their due times. Other tasks are in no order.

    A task that changes its state during the query may
    appear twice or not at all. All other tasks appear.
    """
    rows: list[TaskRow] = []
    pages = _upcoming if query.state is ExecutionState.SCHEDULED else _scan
    calls = 0
    async for page in pages(ledger, query, cursor, min(size, _MOST_TASKS), with_calls):
        if with_calls:
            await _fetch_calls(ledger, page.rows)
        rows += page.rows
        calls += 1
        if page.cursor is None or len(rows) >= size or calls == MOST_CALLS:
            return Page(rows, page.cursor)
    return Page(rows, None)


async def find_all(ledger: Ledger, query: Query, *, with_calls: bool = False) -> AsyncIterator[list[TaskRow]]:
    """All matching tasks, page by page."""
    pages = _upcoming if query.state is ExecutionState.SCHEDULED else _scan
    async for page in pages(ledger, query, None, _MOST_TASKS, with_calls):
        if with_calls:
            await _fetch_calls(ledger, page.rows)
        yield page.rows


async def _fetch_calls(ledger: Ledger, rows: Sequence[TaskRow]) -> None:
    """Adds the arguments that are stored apart. The arguments
    of a task that has ended in the meantime may be gone."""
    apart = [(row, row.task.reference) for row in rows if is_stored_apart(row.record)]
    calls = await ledger.payloads.fetch_many([reference for _, reference in apart if reference is not None])
    for row, reference in apart:
        row.call = calls.get(reference.id) if reference is not None else None


async def _scan(
    ledger: Ledger, query: Query, cursor: bytes | None, count: int, with_calls: bool
) -> AsyncIterator[Page]:
    source = 1 if query.state is ExecutionState.RUNNING else 0
    at, most = cursor or b"0", count
    count = min(most, _FIRST_COUNT)
    while True:
        reply = await ledger.ask("list_unfinished", (source, at, count, int(with_calls), query.filter))
        at, bytes_read = reply[0], reply[1]
        yield Page(_rows(reply), None if at == b"0" else at)
        if at == b"0":
            return
        # Adapt the page to the size of the tasks, so that
        # each page has about the same number of bytes.
        per_task = max(bytes_read / count, 1)
        count = max(min(int(_BYTES / per_task), count * 4, most), 1)


async def _upcoming(
    ledger: Ledger, query: Query, cursor: bytes | None, count: int, with_calls: bool
) -> AsyncIterator[Page]:
    at = cursor
    while True:
        due, key = _read_upcoming(at)
        reply = await ledger.ask("list_scheduled", (key, due, count, int(with_calls), query.filter))
        at = None if not reply[0] else reply[1] + b" " + reply[0]
        yield Page(_rows(reply), at)
        if at is None:
            return


def _read_upcoming(cursor: bytes | None) -> tuple[float, bytes | bool]:
    if cursor is None:
        return 0.0, False
    due, _, key = cursor.partition(b" ")
    return float(due), key


def _rows(reply: list[Any]) -> list[TaskRow]:
    return [
        TaskRow(
            bytes_text(reply[i]),
            reply[i + 1],
            reply[i + 2],
            read_run(reply[i + 3]) if reply[i + 3] else None,
            headers=reply[i + 4] or None,
        )
        for i in range(2, len(reply), 5)
    ]


async def count_by_function(ledger: Ledger) -> dict[str, FunctionCount]:
    """Counts all unfinished tasks by function and state,
    without reading their arguments into this process."""
    counts: dict[str, FunctionCount] = {}
    cursor = b"0"
    while True:
        reply = await ledger.ask("count_by_function", (cursor, _MOST_TASKS))
        for name, scheduled, queued, running, due, held in reply[1:]:
            known = counts.setdefault(bytes_text(name), FunctionCount())
            known.scheduled += scheduled
            known.queued += queued
            known.running += running
            known.held += held
            known.earliest_due_ms = min(known.earliest_due_ms, float(due))
        cursor = reply[0]
        if cursor == b"0":
            return counts


async def sample_by_function(ledger: Ledger, count: int) -> tuple[dict[str, FunctionCount], int, int]:
    """Counts unfinished tasks by function and state in a random sample of about `count` tasks. Also
    returns the size of the sample, and the number of all tasks."""
    counts: dict[str, FunctionCount] = {}
    read = total = 0
    while read < count:
        total, found, *rows = await ledger.ask("sample_tasks", (min(count - read, _SAMPLED_AT_ONCE),))
        for name, scheduled, queued, running in rows:
            known = counts.setdefault(bytes_text(name), FunctionCount())
            known.scheduled += scheduled
            known.queued += queued
            known.running += running
        read += found
        if found < min(count, _SAMPLED_AT_ONCE):
            # There are no more.
            break
    return counts, read, total


async def find_finished(
    ledger: Ledger,
    cursor: bytes | None = None,
    size: int = 100,
    *,
    state: ExecutionState | None = None,
    function: str | None = None,
    key_prefix: str = "",
    calls: int = MOST_CALLS,
    at_once: int = MOST_KEYS,
) -> FinishedPage:
    """A page of the finished tasks whose records have
    not expired yet (`execution_ttl`), in no order.

    Finished tasks have no index. The query scans all keys of the server, so it is meant for
    operators, not for programs.
    """
    beginning = f"{ledger.keys.named('runs', '')}"
    pattern = text_bytes(_as_pattern(beginning + segment(key_prefix)) + "*")
    number = -1 if state is None else STATE_NUMBERS[state]
    name = False if function is None else text_bytes(function)
    rows: list[FinishedRow] = []
    at = cursor or b"0"
    for _ in range(calls):
        reply = await ledger.ask("list_finished", (at, at_once, pattern, number, name))
        at = reply[0]
        for i in range(1, len(reply), 3):
            key = bytes_text(reply[i])[len(beginning) :].replace("%3A", ":").replace("%25", "%")
            rows.append(FinishedRow(key, read_finished_head(reply[i + 1]), reply[i + 2]))
        if at == b"0" or len(rows) >= size:
            break
    return FinishedPage(rows, None if at == b"0" else at)


def _as_pattern(text: str) -> str:
    """A pattern that matches exactly this text."""
    return "".join(f"\\{letter}" if letter in "\\*?[]^-" else letter for letter in text)
