"""Tasks in lists, unfinished and finished: what is shown of each one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from docket.codec.payloads import shown_arguments
from docket.errors import Undecodable
from docket.ledger import Ending, Ledger, TaskStatus, read_ending
from docket.ledger.fleet import worker_name
from docket.ledger.queries import MOST_CALLS, MOST_KEYS, FinishedRow, FoundTask, TaskQuery
from docket.model.places import Place
from docket.model.states import ExecutionState
from docket.model.times import from_ms, to_ms
from docket.storage.keys import bytes_text
from docket.storage.records import RunRecord, TaskRecord
from docket.storage.schema.locations import LOCATIONS

from .filters import TaskFilter

if TYPE_CHECKING:
    pass


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


_PLACES = {location.number: location.place for location in LOCATIONS}


def place_of(task: TaskRecord, *, is_running: bool) -> Place:
    """Where an unfinished task is. A location that only a newer release knows counts as ready."""
    return Place.RUNNING if is_running else _PLACES.get(task.location, Place.READY)


def found_summary(found: FoundTask, place: Place) -> TaskSummary:
    """A task of a page."""
    note = bytes_text(found.note) if found.note is not None else ""
    return _unfinished(found.key, found.task, found.run, place, found.shown_arguments, found.call_size, note)


def _unfinished(
    key: str,
    task: TaskRecord,
    run: RunRecord | None,
    place: Place,
    arguments: Mapping[str, str] | None,
    size: int,
    note: str = "",
) -> TaskSummary:
    since_ms = run.started_ms if run is not None else task.entry_ms if place in (Place.READY, Place.HELD) else 0
    return TaskSummary(
        key=key,
        function=task.function_name,
        place=place,
        state=place.state,
        due=from_ms(task.due_ms),
        since=from_ms(since_ms) if since_ms else None,
        attempt=task.attempt,
        losses=task.losses,
        generation=task.generation,
        submission=task.submission,
        arguments=arguments,
        arguments_bytes=size,
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


def status_summary(key: str, status: TaskStatus) -> TaskSummary | None:
    if status.task is not None:
        place = place_of(status.task, is_running=status.run is not None)
        return _unfinished(key, status.task, status.run, place, _arguments(status.task), status.task.call_size)
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
        arguments=_arguments(task),
        arguments_bytes=task.call_size,
        worker=ending.worker,
        error=ending.error,
    )


def _arguments(task: TaskRecord) -> Mapping[str, str] | None:
    return shown_arguments(task.call) if task.reference is None else None


def has_argument(filter: TaskFilter, arguments: Mapping[str, str] | None) -> bool:
    """The stored text is a `repr`: a text may be given with its quotes or without."""
    if filter.argument is None:
        return True
    name, wanted = filter.argument
    text = (arguments or {}).get(name)
    return text is not None and (text == wanted or (len(text) >= 2 and text[0] in "'\"" and text[1:-1] == wanted))


def matches(filter: TaskFilter, task: TaskSummary, query: TaskQuery) -> bool:
    """Whether a task of any place matches all of the filter."""
    due_ms = to_ms(task.due)
    return (
        task.place in filter.places
        and filter.function in (None, task.function)
        and filter.worker in (None, task.worker)
        and task.key.startswith(filter.key_prefix or "")
        and (filter.key_part or "") in task.key
        and (query.due_from_ms is None or due_ms >= query.due_from_ms)
        and (query.due_before_ms is None or due_ms < query.due_before_ms)
        and has_argument(filter, task.arguments)
    )


_RECORDS_AT_ONCE = 50


@dataclass(frozen=True)
class EndedTask:
    """A finished task whose record has not expired."""

    key: str
    function: str
    state: ExecutionState
    due: datetime
    attempt: int
    arguments: dict[str, str] | None
    arguments_bytes: int
    started_at: datetime | None
    completed_at: datetime
    worker: str | None
    error: str | None


async def find_ended(
    ledger: Ledger,
    states: Sequence[ExecutionState],
    cursor: bytes | None,
    size: int,
    function: str | None,
    key_prefix: str | None,
    calls: int = MOST_CALLS,
    at_once: int = MOST_KEYS,
) -> tuple[list[EndedTask], bytes | None]:
    """A page of the finished tasks in these states, those that ended last first, and the cursor of
    the next page. Finished tasks have no index: the pages themselves are in no order. `calls` is
    the most script calls for this page, and `at_once` how many keys each of them reads."""
    wanted = [state for state in states if state.finished]
    only = wanted[0] if len(wanted) == 1 else None
    prefix = key_prefix or ""
    page = await ledger.queries.finished(
        cursor, size, state=only, function=function, key_prefix=prefix, calls=calls, at_once=at_once
    )
    rows = [row for row in page.rows if row.head.state in wanted]
    rows.sort(key=lambda row: row.head.completed_ms, reverse=True)
    ended: list[EndedTask] = []
    for first in range(0, len(rows), _RECORDS_AT_ONCE):
        ended += await asyncio.gather(*(_with_ending(ledger, row) for row in rows[first : first + _RECORDS_AT_ONCE]))
    return ended, page.cursor


async def _with_ending(ledger: Ledger, row: FinishedRow) -> EndedTask:
    """The page has only the heads of the records. The record may have expired since."""
    ending, size, shown = Ending(), 0, None
    try:
        record = (await ledger.tasks.get(row.key)).finished
        if record is not None:
            ending, size = read_ending(record.tail), record.task.call_size
            shown = shown_arguments(record.task.call) if record.task.reference is None else None
    except Undecodable:
        pass
    head = row.head
    return EndedTask(
        row.key,
        head.task.function_name,
        head.state,
        from_ms(head.task.due_ms),
        head.task.attempt,
        shown,
        size,
        from_ms(head.started_ms) if head.started_ms else None,
        from_ms(head.completed_ms),
        ending.worker,
        ending.error,
    )
