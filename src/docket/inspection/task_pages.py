"""Pages of tasks for people: in the order in which they run, with a cursor, in bounded time."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from docket.codec.call_headers import shown_arguments
from docket.ledger import TaskStatus, read_ending
from docket.ledger.census import CensusRow
from docket.ledger.census import count_tasks as count_places
from docket.ledger.task_pages import FoundTask, Source, TaskQuery, find_tasks
from docket.ledger.workers import worker_name
from docket.model.states import ExecutionState
from docket.model.times import duration_ms, from_ms, to_ms
from docket.storage.keys import bytes_text
from docket.storage.records import HELD, SCHEDULED, UNKNOWN_FUNCTION, WAITING_FOR_SLOT, TaskRecord

from .ended_tasks import EndedTask, find_ended
from .task_filters import SOURCES, Place, TaskFilter

if TYPE_CHECKING:
    from docket.docket import Docket

DEFAULT_SIZE, MOST_TASKS = 50, 500
# A page whose filter matches few tasks ends after this time, with the tasks so far.
PATIENCE = timedelta(milliseconds=60)
# How many tasks one script call reads, if a filter compares them.
_READ_AT_ONCE = 400
# Finished tasks come last.
_FINISHED_STAGE = len(SOURCES)
# What a cursor may have for each stage: the scripts rely on it.
_SCAN, _ENTRY, _SCORE = (
    re.compile(pattern, re.DOTALL)
    for pattern in (rb"\d{0,20}", rb"(\d{1,20}-\d{1,20})?", rb"(-?\d{1,20}(\.\d{1,20})?(e[+-]?\d{1,3})? .*)?")
)
_WITHIN = (_SCAN, _ENTRY, _ENTRY, _SCAN, _SCORE, _SCAN, _SCORE, _SCAN)
_PLACES = {
    SCHEDULED: Place.SCHEDULED,
    WAITING_FOR_SLOT: Place.PARKED,
    UNKNOWN_FUNCTION: Place.UNKNOWN_FUNCTION,
    HELD: Place.HELD,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSummary:
    """A task in a list. What does not apply, or is not known, is None."""

    key: str
    function: str
    place: Place
    state: ExecutionState
    due: datetime
    # Since when it runs, is ready or has ended.
    since: datetime | None
    attempt: int
    losses: int
    generation: int
    # Changes when the task is scheduled again.
    submission: int
    # The `Logged` arguments as text. Nothing is decoded.
    arguments: Mapping[str, str] | None
    arguments_bytes: int
    worker: str | None = None
    error: str | None = None
    # The id of the pause that holds it, or the names of the limits of a parked task, the last of
    # which is full.
    held_by: str | None = None
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskPage:
    """About as many tasks as requested, and the cursor of the next page; None at the end.

    `examined` of about `total` tasks in the places of the filter were read so far, with the pages
    before. A page may have few tasks, or none, and a cursor: the filter matches few of the tasks
    that were read in the time of one page.
    """

    tasks: tuple[TaskSummary, ...]
    cursor: str | None
    examined: int
    # None if that is not known: finished tasks are not counted.
    total: int | None


@dataclass(frozen=True, slots=True)
class _Position:
    """Where a page ends: the stage, the position in it, and how many tasks were read so far."""

    stage: int = 0
    examined: int = 0
    within: bytes | None = None

    def text(self) -> str:
        head = bytes([self.stage]) + self.examined.to_bytes(6, "big")
        return base64.urlsafe_b64encode(head + (self.within or b"")).decode().rstrip("=")


def _read_position(text: str | None) -> _Position:
    if text is None:
        return _Position()
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) < 7 or raw[0] > _FINISHED_STAGE or not _WITHIN[raw[0]].fullmatch(raw[7:]):
        raise ValueError(f"{text!r} is not a cursor: use the one of the page before")
    return _Position(raw[0], int.from_bytes(raw[1:7], "big"), raw[7:] or None)


async def find_page(
    docket: Docket,
    filter: TaskFilter | None = None,
    *,
    cursor: str | None = None,
    size: int = DEFAULT_SIZE,
    patience: timedelta = PATIENCE,
) -> TaskPage:
    """A page of the tasks that match: running ones, then ready, parked, unknown and held ones, then
    scheduled ones by their due times, then finished ones.

    Ready and scheduled tasks are in the order in which they run. A page reads for about `patience`
    at most, whatever the number of tasks is. Raises ValueError for a cursor that is not one.
    """
    if not 1 <= size <= MOST_TASKS:
        raise ValueError(f"size={size}: it must be from 1 to {MOST_TASKS}")
    chosen = filter or TaskFilter()
    at = _read_position(cursor)
    counts = await count_places(docket.ledger)
    total = _total(chosen, counts)
    if chosen.key is not None:
        one = await _find_one(docket, chosen, counts.server_ms)
        return TaskPage(tasks=(one,) if one else (), cursor=None, examined=1, total=total)
    reader = _Reader(docket, chosen, counts.server_ms, size)
    deadline = time.monotonic() + patience.total_seconds()
    position: _Position | None = at
    while position is not None and len(reader.found) < size:
        position = await reader.read(position)
        # Without a filter there are few calls. With one,
        # every page comes further than the one before.
        is_long = chosen.compares or (position is not None and position.stage == _FINISHED_STAGE)
        if is_long and reader.examined > at.examined and time.monotonic() > deadline:
            break
    found = tuple(reader.found)
    examined = position.examined if position is not None else reader.examined
    return TaskPage(tasks=found, cursor=position.text() if position else None, examined=examined, total=total)


class _Reader:
    """Reads the stages of one page."""

    def __init__(self, docket: Docket, filter: TaskFilter, now_ms: float, size: int) -> None:
        self._docket = docket
        self._filter = filter
        self._query = _query(filter, now_ms)
        self._size = size
        self.found: list[TaskSummary] = []
        self.examined = 0

    async def read(self, at: _Position) -> _Position | None:
        """One call, and where to go on."""
        self.examined = at.examined
        if at.stage == _FINISHED_STAGE:
            return await self._read_finished(at)
        source, place = SOURCES[at.stage]
        if place not in self._filter.places or (self._filter.worker and place is not Place.RUNNING):
            return self._next(at)
        left = self._size - len(self.found)
        read = _READ_AT_ONCE if self._filter.compares else left
        page = await find_tasks(self._docket.ledger, source, self._query, at.within, left, read)
        found = [summary for task in page.tasks if self._matches(summary := _summary(task, place))]
        if source is Source.RUNNING:
            found.sort(key=lambda task: task.since or task.due)
        self.found += found
        self.examined += page.examined
        if page.cursor is None:
            return self._next(at)
        return _Position(at.stage, self.examined, page.cursor)

    def _next(self, at: _Position) -> _Position | None:
        last = _FINISHED_STAGE if any(place.is_finished for place in self._filter.places) else _FINISHED_STAGE - 1
        return None if at.stage >= last else _Position(at.stage + 1, self.examined)

    async def _read_finished(self, at: _Position) -> _Position | None:
        """Finished tasks have no index: this reads keys of the server, in no order."""
        chosen = self._filter
        states = [place.state for place in chosen.places if place.is_finished]
        if states and chosen.worker is None:
            left = self._size - len(self.found)
            ledger = self._docket.ledger
            # Each task that is found needs a request of its own.
            at_once = max(left, _READ_AT_ONCE // 4)
            ended, within = await find_ended(
                ledger, states, at.within, left, chosen.function, chosen.key_prefix, calls=1, at_once=at_once
            )
            summaries = [ended_summary(task) for task in ended if self._ended_matches(task)]
            self.found += summaries
            self.examined += len(ended)
            if within is not None:
                return _Position(at.stage, self.examined, within)
        return None

    def _ended_matches(self, task: EndedTask) -> bool:
        part, query, due_ms = self._filter.key_part, self._query, to_ms(task.due)
        return (
            (part is None or part in task.key)
            and (query.due_from_ms is None or due_ms >= query.due_from_ms)
            and (query.due_before_ms is None or due_ms < query.due_before_ms)
            and self._has_argument(task.arguments)
        )

    def _matches(self, task: TaskSummary) -> bool:
        return self._has_argument(task.arguments)

    def _has_argument(self, arguments: Mapping[str, str] | None) -> bool:
        return _has_argument(self._filter, arguments)


def _has_argument(filter: TaskFilter, arguments: Mapping[str, str] | None) -> bool:
    """The stored text is a `repr`: a text may be given with its quotes or without."""
    if filter.argument is None:
        return True
    name, wanted = filter.argument
    text = (arguments or {}).get(name)
    return text is not None and (text == wanted or (len(text) >= 2 and text[0] in "'\"" and text[1:-1] == wanted))


def _query(filter: TaskFilter, now_ms: float) -> TaskQuery:
    return TaskQuery(
        function=filter.function,
        key_prefix=filter.key_prefix,
        key_part=filter.key_part,
        argument=filter.argument[1] if filter.argument is not None else None,
        due_from_ms=now_ms - duration_ms(filter.younger) if filter.younger is not None else None,
        # One microsecond: a task that is exactly as old counts.
        due_before_ms=now_ms - duration_ms(filter.older) + 0.001 if filter.older is not None else None,
        worker=filter.worker,
    )


def _total(filter: TaskFilter, counts: CensusRow) -> int | None:
    if any(place.is_finished for place in filter.places):
        return None
    by_place = {
        Place.RUNNING: counts.running,
        Place.READY: counts.ready,
        Place.PARKED: counts.parked,
        Place.UNKNOWN_FUNCTION: counts.unknown,
        Place.HELD: counts.held,
        Place.SCHEDULED: counts.scheduled,
    }
    return sum(by_place[place] for place in filter.places)


def place_of(task: TaskRecord, *, is_running: bool) -> Place:
    """Where an unfinished task is. A location that only a newer release knows counts as ready."""
    return Place.RUNNING if is_running else _PLACES.get(task.location, Place.READY)


def _summary(found: FoundTask, place: Place) -> TaskSummary:
    task, run = found.task, found.run
    since_ms = run.started_ms if run is not None else task.entry_ms if place in (Place.READY, Place.HELD) else 0
    note = bytes_text(found.note) if found.note is not None else ""
    return TaskSummary(
        key=found.key,
        function=task.function_name,
        place=place,
        state=place.state,
        due=from_ms(task.due_ms),
        since=from_ms(since_ms) if since_ms else None,
        attempt=task.attempt,
        losses=task.losses,
        generation=task.generation,
        submission=task.submission,
        arguments=shown_arguments(found.headers) if found.headers is not None else None,
        arguments_bytes=found.call_size,
        worker=worker_name(run.worker) or run.worker if run is not None else None,
        held_by=note or None if place is Place.HELD else None,
        limits=tuple(note.split("\n")) if place is Place.PARKED and note else (),
    )


def ended_summary(task: EndedTask) -> TaskSummary:
    """A finished task in a list."""
    place = Place(task.state.value)
    return TaskSummary(
        key=task.key,
        function=task.function,
        place=place,
        state=task.state,
        due=task.due,
        since=task.completed_at,
        attempt=task.attempt,
        losses=0,
        generation=0,
        submission=0,
        arguments=task.arguments,
        arguments_bytes=task.arguments_bytes,
        worker=task.worker,
        error=task.error,
    )


async def _find_one(docket: Docket, filter: TaskFilter, now_ms: float) -> TaskSummary | None:
    """The task of the key of the filter, if it matches."""
    assert filter.key is not None
    summary = _status_summary(filter.key, await docket.ledger.get(filter.key))
    if summary is None or not _matches_all(filter, summary, _query(filter, now_ms)):
        return None
    return summary


def _matches_all(filter: TaskFilter, task: TaskSummary, query: TaskQuery) -> bool:
    due_ms = to_ms(task.due)
    return (
        task.place in filter.places
        and filter.function in (None, task.function)
        and filter.worker in (None, task.worker)
        and task.key.startswith(filter.key_prefix or "")
        and (filter.key_part or "") in task.key
        and (query.due_from_ms is None or due_ms >= query.due_from_ms)
        and (query.due_before_ms is None or due_ms < query.due_before_ms)
        and _has_argument(filter, task.arguments)
    )


def _status_summary(key: str, status: TaskStatus) -> TaskSummary | None:
    if status.task is not None:
        place = place_of(status.task, is_running=status.run is not None)
        headers = status.task.call if status.task.reference is None else None
        return _summary(FoundTask(key, status.task, status.task.call_size, status.run, headers, None), place)
    if status.finished is None:
        return None
    record, task = status.finished, status.finished.task
    ending = read_ending(record.tail)
    return TaskSummary(
        key=key,
        function=task.function_name,
        place=Place(record.state.value),
        state=record.state,
        due=from_ms(task.due_ms),
        since=from_ms(record.completed_ms),
        attempt=task.attempt,
        losses=task.losses,
        generation=task.generation,
        submission=task.submission,
        arguments=shown_arguments(task.call) if task.reference is None else None,
        arguments_bytes=task.call_size,
        worker=ending.worker,
        error=ending.error,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskCount:
    """How many tasks match. If `is_exact` is False there are more: `examined` of about `total`
    tasks were read in the time of one page."""

    count: int
    is_exact: bool
    examined: int
    total: int | None


async def count_tasks(docket: Docket, filter: TaskFilter | None = None, *, patience: timedelta = PATIENCE) -> TaskCount:
    """Counts the tasks that match, for about `patience` at most."""
    chosen = filter or TaskFilter()
    counts = await count_places(docket.ledger)
    total = _total(chosen, counts)
    if total is not None and not chosen.compares:
        return TaskCount(count=total, is_exact=True, examined=total, total=total)
    deadline = time.monotonic() + patience.total_seconds()
    count, cursor = 0, None
    while True:
        left = max(deadline - time.monotonic(), 0.0)
        page = await find_page(docket, chosen, cursor=cursor, size=MOST_TASKS, patience=timedelta(seconds=left))
        count, cursor = count + len(page.tasks), page.cursor
        if cursor is None or time.monotonic() > deadline:
            return TaskCount(count=count, is_exact=cursor is None, examined=page.examined, total=total)


async def find_oldest(docket: Docket, size: int = 8) -> tuple[TaskSummary, ...]:
    """The tasks that have been ready longest, the oldest first."""
    page = await find_page(docket, TaskFilter(places=frozenset((Place.READY,))), size=size)
    return tuple(sorted(page.tasks, key=lambda task: task.since or task.due))
