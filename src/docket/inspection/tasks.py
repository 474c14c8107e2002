"""Pages of tasks for people: in the order in which they run, with a cursor, in bounded time."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import time
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta

from docket.errors import Undecodable
from docket.execution.context import DocketContext
from docket.ledger.history import FinishedRun
from docket.ledger.queries import SOURCES_BY_LOCATION, CensusRow, Source, TaskQuery
from docket.model.places import Place
from docket.model.times import duration_ms
from docket.storage.schema.locations import LOCATIONS, Walk

from .filters import TaskFilter, is_entry_id, is_scan_cursor
from .summaries import (
    EndedTask,
    TaskSummary,
    ended_summary,
    find_ended,
    found_summary,
    has_argument,
    matches,
    status_summary,
)

# How long one look into the history takes at most.
_HISTORY_PATIENCE = timedelta(milliseconds=20)
# The record of a task that ended just before is there a little longer.
_SPARE = timedelta(minutes=1)
# Each task needs a request of its own.
_RUNS_AT_ONCE = 100
# The newest runs of the history, which the list of the other tasks leaves out.
_NEWEST = 1_000


@dataclass(frozen=True, slots=True)
class FinishedPage:
    """Some finished tasks, how many tasks or runs were read for them, and where to go on."""

    tasks: list[TaskSummary]
    examined: int
    within: bytes | None


async def finished_from_history(
    docket: DocketContext, filter: TaskFilter, query: TaskQuery, within: bytes | None, size: int
) -> FinishedPage:
    """The tasks of the newest runs, while their records are kept. The history has every failure,
    and some of the other runs."""
    if filter.worker is not None or not docket.execution_ttl:
        return FinishedPage([], 0, None)
    runs, examined, cursor = await _newest_keys(docket, filter, within.decode() if within is not None else None, size)
    found = await asyncio.gather(*(_ended_with(docket, run) for run in runs))
    tasks = [task for task in found if task is not None and matches(filter, task, query)]
    return FinishedPage(tasks, examined, cursor.encode() if cursor is not None else None)


async def _newest_keys(
    docket: DocketContext, filter: TaskFilter, cursor: str | None, size: int
) -> tuple[list[FinishedRun], int, str | None]:
    """The last run of each task that may match; how many runs were read; and where to go on."""
    begin = await docket.ledger.now() - docket.execution_ttl - _SPARE
    deadline = time.monotonic() + _HISTORY_PATIENCE.total_seconds()
    last_runs: dict[str, FinishedRun] = {}
    examined = 0
    async with aclosing(docket.ledger.history.newest(cursor, at_once=_RUNS_AT_ONCE)) as runs:
        async for run in runs:
            # Older records have expired.
            if run.ended_at < begin:
                break
            is_late = examined > 0 and examined % _RUNS_AT_ONCE == 0 and time.monotonic() > deadline
            if len(last_runs) == size or is_late:
                return list(last_runs.values()), examined, cursor
            examined, cursor = examined + 1, run.id
            if filter.function in (None, run.function) and (filter.key_part or "") in run.key:
                # A task that was retried has several runs.
                last_runs.setdefault(run.key, run)
    return list(last_runs.values()), examined, None


async def _ended_with(docket: DocketContext, run: FinishedRun) -> TaskSummary | None:
    """The task, if it ended with this run and its record is there."""
    try:
        summary = status_summary(run.key, await docket.ledger.tasks.get(run.key))
    except Undecodable:
        return None
    is_same = summary is not None and summary.place.is_finished and summary.since == run.ended_at
    return summary if is_same else None


async def finished_from_records(
    docket: DocketContext, filter: TaskFilter, query: TaskQuery, within: bytes | None, size: int
) -> FinishedPage:
    """All others, in no order. They have no index: this reads keys of the server."""
    states = [place.state for place in filter.places if place.is_finished]
    if not states or filter.worker is not None:
        return FinishedPage([], 0, None)
    listed = await _newest(docket)
    at_once = max(size, _RUNS_AT_ONCE)
    ended, following = await find_ended(
        docket.ledger, states, within, size, filter.function, filter.key_prefix, calls=1, at_once=at_once
    )
    tasks = [ended_summary(task) for task in _others(ended, listed)]
    return FinishedPage([task for task in tasks if matches(filter, task, query)], len(ended), following)


def _others(ended: Iterable[EndedTask], listed: set[tuple[str, datetime]]) -> list[EndedTask]:
    return [task for task in ended if (task.key, task.completed_at) not in listed]


async def _newest(docket: DocketContext) -> set[tuple[str, datetime]]:
    found: set[tuple[str, datetime]] = set()
    async with aclosing(docket.ledger.history.newest()) as runs:
        async for run in runs:
            found.add((run.key, run.ended_at))
            if len(found) >= _NEWEST:
                break
    return found


DEFAULT_SIZE, MOST_TASKS = 50, 500
# A page whose filter matches few tasks ends after this time, with the tasks so far.
PATIENCE = timedelta(milliseconds=60)
# How many tasks one script call reads, if a filter compares them.
_READ_AT_ONCE = 400
# Where a page reads unfinished tasks, in this sequence.
_SOURCES = (
    (Source.RUNNING, Place.RUNNING),
    *((SOURCES_BY_LOCATION[location.number], location.place) for location in LOCATIONS),
)
# Finished tasks come last: those of the history, then all others.
_HISTORY_STAGE, _RECORDS_STAGE = len(_SOURCES), len(_SOURCES) + 1
# What a cursor may have for each stage: the scripts rely on it.
_SCORE_TEXT = re.compile(rb"(-?\d{1,20}(\.\d{1,20})?(e[+-]?\d{1,3})? .*)?", re.DOTALL)


def _is_scan(within: bytes) -> bool:
    return not within or is_scan_cursor(within.decode("ascii", "replace"))


def _is_entry(within: bytes) -> bool:
    return not within or is_entry_id(within.decode("ascii", "replace"))


def _is_score(within: bytes) -> bool:
    return _SCORE_TEXT.fullmatch(within) is not None


def _is_run(within: bytes) -> bool:
    return not within or (within[-1:] in (b"f", b"s") and len(within) > 1 and _is_entry(within[:-1]))


_CHECKS = {Walk.SCAN: _is_scan, Walk.ENTRIES: _is_entry, Walk.SCORES: _is_score}
_WITHIN = (*(_CHECKS[source.walk] for source, _ in _SOURCES), _is_run, _is_scan)


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
    if len(raw) < 7 or raw[0] > _RECORDS_STAGE or not _WITHIN[raw[0]](raw[7:]):
        raise ValueError(f"{text!r} is not a cursor: use the one of the page before")
    return _Position(raw[0], int.from_bytes(raw[1:7], "big"), raw[7:] or None)


async def find_page(
    docket: DocketContext,
    filter: TaskFilter | None = None,
    *,
    cursor: str | None = None,
    size: int = DEFAULT_SIZE,
    patience: timedelta = PATIENCE,
) -> TaskPage:
    """A page of the tasks that match: running ones, then ready, parked, unknown and held ones, then
    scheduled ones by their due times, then finished ones: those of the history, the newest first,
    and then the others.

    Ready and scheduled tasks are in the order in which they run. A page reads for about `patience`
    at most, whatever the number of tasks is. Raises ValueError for a cursor that is not one.
    """
    if not 1 <= size <= MOST_TASKS:
        raise ValueError(f"size={size}: it must be from 1 to {MOST_TASKS}")
    chosen = filter or TaskFilter()
    at = _read_position(cursor)
    counts = await docket.ledger.queries.census()
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
        is_long = chosen.compares or (position is not None and position.stage >= _HISTORY_STAGE)
        if is_long and reader.examined > at.examined and time.monotonic() > deadline:
            break
    found = tuple(reader.found)
    examined = position.examined if position is not None else reader.examined
    return TaskPage(tasks=found, cursor=position.text() if position else None, examined=examined, total=total)


class _Reader:
    """Reads the stages of one page."""

    def __init__(self, docket: DocketContext, filter: TaskFilter, now_ms: float, size: int) -> None:
        self._docket = docket
        self._filter = filter
        self._query = _query(filter, now_ms)
        self._size = size
        self.found: list[TaskSummary] = []
        self.examined = 0

    async def read(self, at: _Position) -> _Position | None:
        """One call, and where to go on."""
        self.examined = at.examined
        if at.stage == _HISTORY_STAGE:
            return await self._read_history(at)
        if at.stage == _RECORDS_STAGE:
            return await self._read_records(at)
        source, place = _SOURCES[at.stage]
        if place not in self._filter.places or (self._filter.worker and place is not Place.RUNNING):
            return self._next(at)
        read = _READ_AT_ONCE if self._filter.compares else self._left
        page = await self._docket.ledger.queries.find(source, self._query, at.within, self._left, read)
        summaries = [found_summary(task, place) for task in page.tasks]
        found = [summary for summary in summaries if has_argument(self._filter, summary.arguments)]
        if source is Source.RUNNING:
            found.sort(key=lambda task: task.since or task.due)
        self.found += found
        self.examined += page.examined
        if page.cursor is None:
            return self._next(at)
        return _Position(at.stage, self.examined, page.cursor)

    def _next(self, at: _Position) -> _Position | None:
        last = _HISTORY_STAGE if any(place.is_finished for place in self._filter.places) else _HISTORY_STAGE - 1
        return None if at.stage >= last else _Position(at.stage + 1, self.examined)

    async def _read_history(self, at: _Position) -> _Position | None:
        page = await finished_from_history(self._docket, self._filter, self._query, at.within, self._left)
        return self._finished(at, page, _Position(_RECORDS_STAGE, self.examined + page.examined))

    async def _read_records(self, at: _Position) -> _Position | None:
        page = await finished_from_records(self._docket, self._filter, self._query, at.within, self._left)
        return self._finished(at, page, None)

    def _finished(self, at: _Position, page: FinishedPage, following: _Position | None) -> _Position | None:
        seen = {task.key for task in self.found}
        self.found += [task for task in page.tasks if task.key not in seen]
        self.examined += page.examined
        return following if page.within is None else _Position(at.stage, self.examined, page.within)

    @property
    def _left(self) -> int:
        return self._size - len(self.found)


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
    return sum(counts.at(place) for place in filter.places)


async def _find_one(docket: DocketContext, filter: TaskFilter, now_ms: float) -> TaskSummary | None:
    """The task of the key of the filter, if it matches."""
    assert filter.key is not None
    summary = status_summary(filter.key, await docket.ledger.tasks.get(filter.key))
    if summary is None or not matches(filter, summary, _query(filter, now_ms)):
        return None
    return summary


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskCount:
    """How many tasks match. If `is_exact` is False there are more: `examined` of about `total`
    tasks were read in the time of one page."""

    count: int
    is_exact: bool
    examined: int
    total: int | None


async def count_tasks(
    docket: DocketContext, filter: TaskFilter | None = None, *, patience: timedelta = PATIENCE
) -> TaskCount:
    """Counts the tasks that match, for about `patience` at most."""
    chosen = filter or TaskFilter()
    counts = await docket.ledger.queries.census()
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


async def find_oldest(docket: DocketContext, size: int = 8) -> tuple[TaskSummary, ...]:
    """The tasks that have been ready longest, the oldest first."""
    page = await find_page(docket, TaskFilter(places=frozenset((Place.READY,))), size=size)
    return tuple(sorted(page.tasks, key=lambda task: task.since or task.due))
