"""Tasks in lists: what is shown of each one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from docket.codec.call_headers import shown_arguments
from docket.ledger import TaskStatus, read_ending
from docket.ledger.fleet import worker_name
from docket.ledger.queries import FoundTask, TaskQuery
from docket.model.states import ExecutionState
from docket.model.times import from_ms, to_ms
from docket.storage.keys import bytes_text
from docket.storage.records import HELD, SCHEDULED, UNKNOWN_FUNCTION, WAITING_FOR_SLOT, RunRecord, TaskRecord

from .ended_tasks import EndedTask
from .task_filters import Place, TaskFilter

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
