"""Questions about tasks: pages of unfinished and finished ones, counts, and what comes next. No
request blocks the server for more than a few milliseconds."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from docket.codec.payloads import shown_arguments
from docket.model.places import PlaceCounts
from docket.model.states import STATE_NUMBERS, ExecutionState
from docket.storage.keys import bytes_text, segment, text_bytes
from docket.storage.records import (
    FinishedHead,
    RunRecord,
    TaskRecord,
    is_stored_apart,
    read_due,
    read_finished_head,
    read_run,
    read_task,
)
from docket.storage.schema import locations
from docket.storage.schema.locations import Walk
from docket.storage.schema.records import APART

from .calls import Area, ScriptCalls
from .facts import TaskFacts
from .letters import BuriedChain, read_buried_chain
from .payloads import PayloadStore
from .statistics import Row, counts_by_field, read_fields

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
# How many tasks one script call counts.
_COUNTED_AT_ONCE, _SAMPLED_AT_ONCE = 500, 250
# No minute is later: a census that begins there has no minutes.
NO_MINUTE = 2**53
# The most tasks that one script call reads, and those of one bucket.
_READ_AT_ONCE, _OF_A_BUCKET = 240, 20
_CHAINS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Source:
    """Where unfinished tasks are listed: a location, or one of the sources below."""

    number: int
    walk: Walk = Walk.SCAN

    RUNNING: ClassVar[Source]
    SCHEDULED: ClassVar[Source]
    # The records themselves, in no order: also tasks that no other source has, because only a
    # newer release knows where they wait.
    EVERY: ClassVar[Source]
    # The same, but only tasks of the state QUEUED.
    QUEUED: ClassVar[Source]


SOURCES_BY_LOCATION = {location.number: Source(location.number, location.walk) for location in locations.LOCATIONS}
Source.RUNNING = Source(locations.RUNNING_TASKS)
Source.SCHEDULED = SOURCES_BY_LOCATION[locations.SCHEDULED]
Source.EVERY = Source(locations.EVERY_TASK)
Source.QUEUED = Source(locations.QUEUED_TASKS)


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Conditions for tasks. `argument` is a part of the texts of its `Logged` arguments.
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
            task.call, task.flags = self.call, task.flags & ~APART
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


@dataclass(frozen=True, kw_only=True, slots=True)
class CensusRow(PlaceCounts):
    """The counts of one moment."""

    unfinished: int
    server_ms: float
    # Dead letters, and those that did not fit (`Docket(keep_failures=…)`) since the docket exists.
    dead: int
    dropped: int
    limits: int
    oldest_ready_ms: float | None
    workers: int
    stopping: int
    # Slots of limits in use; 0 if they were not counted.
    slots: int
    # The sums of all functions, by minute since 1970; none if only counts were asked for.
    minutes: dict[int, Row] = field(default_factory=dict[int, Row])


@dataclass(slots=True)
class FunctionCount:
    """The number of unfinished tasks of one function by state, and the earliest due time. `held`
    tasks count as queued, too."""

    scheduled: int = 0
    queued: int = 0
    running: int = 0
    earliest_due_ms: float = field(default=math.inf)
    held: int = 0


@dataclass(frozen=True, slots=True)
class BucketRow:
    """The number of tasks that are due in a part of the time, and the functions of those that were
    read."""

    count: int
    read: int
    functions: dict[str, int]


@dataclass(frozen=True, slots=True)
class ChainRow:
    """An automatic task. `task` is None if its chain has ended."""

    name: str
    task: TaskRecord | None
    run: RunRecord | None
    cancelled_ms: float | None
    buried: BuriedChain | None
    workers: int


class Queries(Area):
    """Reads the tasks of one docket."""

    def __init__(self, calls: ScriptCalls, payloads: PayloadStore) -> None:
        super().__init__(calls)
        self._payloads = payloads

    async def facts(self, key: str) -> TaskFacts:
        """Reads all facts about a task in one request."""
        now_ms, task, run, finished, *pairs = await self._calls.run_script("why", (text_bytes(key),))
        facts = {bytes_text(pairs[i]): pairs[i + 1] for i in range(0, len(pairs), 2)}
        return TaskFacts(
            now_ms, read_task(task) if task is not None else None, read_run(run) if run else None, finished, facts
        )

    async def census(self, last_minute: int | None = NO_MINUTE, *, with_slots: bool = False) -> CensusRow:
        """All counts of the docket, in one script call. `last_minute` is the last minute of the
        census before: then it also has the endings of the minutes since, and with None those of
        the present one."""
        minute = -1 if last_minute is None else last_minute
        return _read_census_row(await self._calls.run_script("census", (minute, int(with_slots))))

    async def unfinished(self) -> int:
        return (await self.census()).unfinished

    async def find(
        self,
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
        following, examined, bytes_read, *rows = await self._calls.run_script(
            "find_tasks", (source.number, cursor or b"", most, most_read, int(with_calls), query.row())
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
            await self._fetch_calls(found)
        return FoundPage(found, examined, bytes_read, following or None)

    async def _fetch_calls(self, tasks: Sequence[FoundTask]) -> None:
        """Adds the arguments that are stored apart. The arguments
        of a task that has ended in the meantime may be gone."""
        apart = [(task, task.task.reference) for task in tasks if is_stored_apart(task.record)]
        calls = await self._payloads.fetch_many([reference for _, reference in apart if reference is not None])
        for task, reference in apart:
            task.call = calls.get(reference.id) if reference is not None else None

    async def pages(
        self,
        source: Source,
        query: TaskQuery = EVERY_TASK,
        cursor: bytes | None = None,
        size: int = _MOST_TASKS,
        *,
        with_calls: bool = False,
    ) -> AsyncIterator[FoundPage]:
        """The pages of a source to its end, of about `size` tasks.

        A task that changes its state in the meantime may
        appear twice or not at all. All other tasks appear.
        """
        most = min(size, _MOST_TASKS)
        is_scan = source.walk is Walk.SCAN
        count = min(most, _FIRST_COUNT) if is_scan else most
        while True:
            page = await self.find(source, query, cursor, most, count, with_calls=with_calls)
            yield page
            cursor = page.cursor
            if cursor is None:
                return
            if is_scan:
                # Adapt the page to the size of the tasks, so that
                # each page has about the same number of bytes.
                per_task = max(page.bytes_read / count, 1)
                count = max(min(int(_BYTES / per_task), count * 4, most), 1)

    async def all(
        self, source: Source = Source.EVERY, query: TaskQuery = EVERY_TASK, *, with_calls: bool = False
    ) -> AsyncIterator[list[FoundTask]]:
        """All tasks of a source that match, page by page."""
        async for page in self.pages(source, query, with_calls=with_calls):
            yield page.tasks

    async def finished(
        self,
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
        beginning = f"{self._calls.keys.named('runs', '')}"
        pattern = text_bytes(_as_pattern(beginning + segment(key_prefix)) + "*")
        number = -1 if state is None else STATE_NUMBERS[state]
        name = False if function is None else text_bytes(function)
        rows: list[FinishedRow] = []
        at = cursor or b"0"
        for _ in range(calls):
            reply = await self._calls.run_script("list_finished", (at, at_once, pattern, number, name))
            at = reply[0]
            for i in range(1, len(reply), 3):
                key = bytes_text(reply[i])[len(beginning) :].replace("%3A", ":").replace("%25", "%")
                rows.append(FinishedRow(key, read_finished_head(reply[i + 1]), reply[i + 2]))
            if at == b"0" or len(rows) >= size:
                break
        return FinishedRows(rows, None if at == b"0" else at)

    async def count_by_function(self) -> dict[str, FunctionCount]:
        """Counts all unfinished tasks by function and state,
        without reading their arguments into this process."""
        counts: dict[str, FunctionCount] = {}
        cursor = b"0"
        while True:
            reply = await self._calls.run_script("count_by_function", (cursor, _COUNTED_AT_ONCE))
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

    async def sample_by_function(self, count: int) -> tuple[dict[str, FunctionCount], int, int]:
        """Counts unfinished tasks by function and state in a random sample of about `count` tasks.
        Also returns the size of the sample, and the number of all tasks."""
        counts: dict[str, FunctionCount] = {}
        read = total = 0
        while read < count:
            total, found, *rows = await self._calls.run_script("sample_tasks", (min(count - read, _SAMPLED_AT_ONCE),))
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

    async def upcoming(self, begin_ms: float, bucket_ms: float, buckets: int) -> list[BucketRow]:
        """The scheduled tasks by time, from `begin_ms`."""
        found: list[BucketRow] = []
        at_once = _READ_AT_ONCE // _OF_A_BUCKET
        for first in range(0, buckets, at_once):
            begin, number = begin_ms + first * bucket_ms, min(at_once, buckets - first)
            reply = await self._calls.run_script("upcoming", (begin, bucket_ms, number, _OF_A_BUCKET))
            for i in range(0, len(reply), 3):
                names = reply[i + 2]
                functions = {bytes_text(names[n]): names[n + 1] for n in range(0, len(names), 2)}
                found.append(BucketRow(reply[i], reply[i + 1], functions))
        return found

    async def chains(self) -> AsyncIterator[ChainRow]:
        """All automatic tasks, read page by page."""
        cursor = b"0"
        while True:
            cursor, *found = await self._calls.run_script("list_chains", (cursor, _CHAINS_AT_ONCE))
            for i in range(0, len(found), 6):
                name, task, run, cancelled, buried, workers = found[i : i + 6]
                text = bytes_text(name)
                yield ChainRow(
                    text,
                    read_task(task) if task else None,
                    read_run(run) if run else None,
                    float(cancelled) if cancelled else None,
                    read_buried_chain(text, buried) if buried else None,
                    workers,
                )
            if cursor == b"0":
                return


def _as_pattern(text: str) -> str:
    """A pattern that matches exactly this text."""
    return "".join(f"\\{letter}" if letter in "\\*?[]^-" else letter for letter in text)


def _read_census_row(reply: Sequence[Any]) -> CensusRow:
    """The census that the script has answered with."""
    now, unfinished, running, counted, dead, dropped, limits, oldest, workers, stopping, slots, *found = reply
    minutes: dict[int, Row] = {}
    for i in range(0, len(found), 2):
        total = minutes.setdefault(found[i], Row())
        for _, row in read_fields(found[i + 1]):
            total.add(row)
    return CensusRow(
        **counts_by_field(unfinished, running, dict(zip(locations.COUNTED, counted, strict=True))),
        unfinished=unfinished,
        server_ms=now,
        dead=dead,
        dropped=dropped,
        limits=limits,
        oldest_ready_ms=float(oldest.partition(b"-")[0]) if oldest else None,
        workers=workers,
        stopping=stopping,
        slots=slots,
        minutes=minutes,
    )
