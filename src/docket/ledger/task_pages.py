"""Pages of tasks: unfinished ones source by source, finished ones as the server's keys come. No
request blocks the server for more than a few milliseconds."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
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
# The most keys of the server that one script call looks at.
MOST_KEYS = 500
# The most script calls for one page. A filter that matches
# few tasks returns the tasks so far, and a cursor.
MOST_CALLS = 20


class Source(enum.IntEnum):
    """Where unfinished tasks are listed. lua/find_tasks.lua has the same numbers."""

    RUNNING = 0
    FRONT = 1
    STREAM = 2
    PARKED = 3
    UNKNOWN_FUNCTION = 4
    HELD = 5
    SCHEDULED = 6
    # The records themselves, in no order: also tasks that no other source has, because only a
    # newer release knows where they wait.
    EVERY = 7
    # The same, but only tasks of the state QUEUED.
    QUEUED = 8


# The server reads them as it likes, and cannot end a page before its count.
_SCANNED = (Source.RUNNING, Source.PARKED, Source.HELD, Source.EVERY, Source.QUEUED)


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """What a task has to have. `argument` is a part of the texts of its `Logged` arguments.
    `due_before_ms` is exclusive."""

    function: str | None = None
    key_prefix: str | None = None
    key_part: str | None = None
    argument: str | None = None
    due_from_ms: float | None = None
    due_before_ms: float | None = None
    worker: str | None = None

    def row(self) -> list[Any]:
        """The query in the script's format."""
        texts = (self.function, self.key_prefix, self.key_part, self.argument)
        times = (self.due_from_ms, self.due_before_ms)
        worker = False if self.worker is None else text_bytes(segment(self.worker))
        return [
            *(False if text is None else text_bytes(text) for text in texts),
            *(False if time is None else time for time in times),
            worker,
        ]


EVERY_TASK = TaskQuery()


@dataclass(slots=True)
class FoundTask:
    """An unfinished task as it is stored. Its record has no arguments unless the caller asked for
    them. `note` is the progress of a running task, the rule that holds a task, or the limits that
    it waits for."""

    key: str
    record: bytes
    run: RunRecord | None
    note: bytes | None = None
    # The size and the beginning of the call, if the caller did not ask for the arguments.
    cut_size: int = 0
    headers: bytes | None = None
    # The arguments, if they are stored apart and were fetched.
    call: bytes | None = None

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
        return self.cut_size or self.task.call_size

    @property
    def shown_arguments(self) -> dict[str, str] | None:
        """The `Logged` arguments as text, by parameter. Nothing is decoded."""
        return shown_arguments(self.headers) if self.headers is not None else None

    @property
    def is_held(self) -> bool:
        """Whether a pause holds the task."""
        return self.run is None and self.task.is_held

    @property
    def state(self) -> ExecutionState:
        return ExecutionState.RUNNING if self.run is not None else self.task.state


@dataclass(frozen=True, slots=True)
class FoundPage:
    """Some tasks of one source, how many were read, the bytes of their records, and where to go on;
    None at the end."""

    tasks: list[FoundTask]
    examined: int
    bytes_read: int
    cursor: bytes | None


async def find_tasks(
    ledger: Ledger,
    source: Source,
    query: TaskQuery,
    cursor: bytes | None,
    most: int,
    most_read: int,
    *,
    with_calls: bool = False,
) -> FoundPage:
    """Reads at most `most_read` tasks of a source. If the source has no order, it may find more
    than `most`."""
    following, examined, bytes_read, *rows = await ledger.ask(
        "find_tasks", (int(source), cursor or b"", most, most_read, int(with_calls), query.row())
    )
    found = [
        FoundTask(
            bytes_text(rows[i]),
            rows[i + 1],
            read_run(rows[i + 2]) if rows[i + 2] else None,
            rows[i + 3] or None,
            rows[i + 4],
            rows[i + 5] or None,
        )
        for i in range(0, len(rows), 6)
    ]
    if with_calls:
        await _fetch_calls(ledger, found)
    return FoundPage(found, examined, bytes_read, following or None)


async def _fetch_calls(ledger: Ledger, tasks: Sequence[FoundTask]) -> None:
    """Adds the arguments that are stored apart. The arguments
    of a task that has ended in the meantime may be gone."""
    apart = [(task, task.task.reference) for task in tasks if is_stored_apart(task.record)]
    calls = await ledger.payloads.fetch_many([reference for _, reference in apart if reference is not None])
    for task, reference in apart:
        task.call = calls.get(reference.id) if reference is not None else None


async def find_pages(
    ledger: Ledger,
    source: Source,
    query: TaskQuery = EVERY_TASK,
    cursor: bytes | None = None,
    size: int = _MOST_TASKS,
    *,
    with_calls: bool = False,
) -> AsyncIterator[FoundPage]:
    """The pages of a source to its end, of about `size` tasks.

    A task that changes its state in the meantime may appear twice or not at all. All other tasks
    appear.
    """
    most = min(size, _MOST_TASKS)
    is_scan = source in _SCANNED
    count = min(most, _FIRST_COUNT) if is_scan else most
    while True:
        page = await find_tasks(ledger, source, query, cursor, most, count, with_calls=with_calls)
        yield page
        cursor = page.cursor
        if cursor is None:
            return
        if is_scan:
            # Adapt the page to the size of the tasks, so that
            # each page has about the same number of bytes.
            per_task = max(page.bytes_read / count, 1)
            count = max(min(int(_BYTES / per_task), count * 4, most), 1)


async def find_all(
    ledger: Ledger, source: Source = Source.EVERY, query: TaskQuery = EVERY_TASK, *, with_calls: bool = False
) -> AsyncIterator[list[FoundTask]]:
    """All tasks of a source that match, page by page."""
    async for page in find_pages(ledger, source, query, with_calls=with_calls):
        yield page.tasks


@dataclass(slots=True)
class FinishedRow:
    """A finished task: the head of its record, and the size of the record."""

    key: str
    head: FinishedHead
    size: int


@dataclass(slots=True)
class FinishedRows:
    """About as many finished tasks as requested, and the cursor
    of the next page. The cursor is None on the last page."""

    rows: list[FinishedRow]
    cursor: bytes | None


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
) -> FinishedRows:
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
    return FinishedRows(rows, None if at == b"0" else at)


def _as_pattern(text: str) -> str:
    """A pattern that matches exactly this text."""
    return "".join(f"\\{letter}" if letter in "\\*?[]^-" else letter for letter in text)
