"""One task for a page about it: everything that is known, as a time-line, too."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from docket.codec.call_headers import read_trace
from docket.ledger import TaskStatus
from docket.model.times import from_ms
from docket.storage.records import TaskRecord

from .details import TaskDetails, details_of
from .reasons import as_plain
from .result_views import ResultView, read_result
from .task_filters import Place
from .task_summaries import place_of
from .traces import trace_id

if TYPE_CHECKING:
    from docket.docket import Docket


class MomentKind(enum.StrEnum):
    """What happened to a task."""

    ADDED = "added"
    DUE = "due"
    READY = "ready"
    WAITS = "waits"
    CLAIMED = "claimed"
    FAILED_ATTEMPT = "failed_attempt"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """One point of a time-line. `text` is a sentence. `is_expected`: it has not happened yet."""

    kind: MomentKind
    at: datetime
    text: str
    attempt: int | None = None
    worker: str | None = None
    error: str | None = None
    # Of a run: when it ended, or None if it goes on.
    until: datetime | None = None
    is_expected: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskView:
    """One task. `letter` is the id of its newest dead letter; `trace` the context of the trace in
    which it was added (`traceparent`), and `trace_id` the id in there."""

    details: TaskDetails
    place: Place
    timeline: tuple[Moment, ...]
    result: ResultView | None
    letter: int | None
    trace: dict[str, str] | None
    trace_id: str | None
    is_automatic: bool

    def as_json(self) -> dict[str, Any]:
        """The view for programs: plain values, times in ISO 8601."""
        return as_plain(self)


async def read_task_view(docket: Docket, key: str) -> TaskView | None:
    """All about the task of that key, or None if there is none. Raises Undecodable if its finished
    record cannot be read."""
    found = await details_of(docket, key)
    if found is None:
        return None
    details, status = found
    task = status.task or (status.finished.task if status.finished else None)
    assert task is not None
    place = Place(details.state.value) if status.finished else place_of(task, is_running=status.run is not None)
    trace = read_trace(_headers(task.call)) if task.reference is None else {}
    letter = await docket.ledger.letters.get(key)
    return TaskView(
        details=details,
        place=place,
        timeline=_timeline(details, status, task, place),
        result=await read_result(docket, key, status.finished) if status.finished is not None else None,
        letter=letter.id if letter is not None else None,
        trace=trace or None,
        trace_id=trace_id(trace),
        is_automatic=key == details.function,
    )


def _headers(call: bytes) -> bytes:
    return call[2 : 2 + int.from_bytes(call[:2], "little")]


def _claim_words(details: TaskDetails) -> str:
    words = f"Worker {details.worker!r} claimed the task (attempt {details.attempt})."
    return f"{words} {details.waited}" if details.waited else words


def _timeline(details: TaskDetails, status: TaskStatus, task: TaskRecord, place: Place) -> tuple[Moment, ...]:
    found: list[Moment] = []
    now = details.why.taken
    is_first = details.attempt == 1 and not details.failed_attempts
    if details.added_at is not None:
        found.append(Moment(kind=MomentKind.ADDED, at=details.added_at, text="The task was added."))
    if is_first:
        found.append(
            Moment(kind=MomentKind.DUE, at=details.due, text="The task is due.", is_expected=details.due > now)
        )
    if task.entry_ms and status.finished is None and status.run is None:
        found.append(Moment(kind=MomentKind.READY, at=from_ms(task.entry_ms), text="The task is ready to run."))
    for failed in details.failed_attempts:
        found.append(
            Moment(
                kind=MomentKind.FAILED_ATTEMPT,
                at=failed.started_at,
                text=f"Attempt {failed.attempt} failed on worker {failed.worker!r}.",
                attempt=failed.attempt,
                worker=failed.worker,
                error=failed.error,
                until=failed.failed_at,
            )
        )
    if not is_first and not place.is_finished and status.run is None:
        text = f"Attempt {details.attempt} is due."
        found.append(Moment(kind=MomentKind.DUE, at=details.due, text=text, is_expected=details.due > now))
    if details.started_at is not None:
        found.append(
            Moment(
                kind=MomentKind.CLAIMED,
                at=details.started_at,
                text=_claim_words(details),
                attempt=details.attempt,
                worker=details.worker,
                until=details.completed_at,
            )
        )
    if details.completed_at is not None:
        text = f"The task ended: {details.state.value}."
        found.append(Moment(kind=MomentKind.ENDED, at=details.completed_at, text=text, error=details.error))
    found.sort(key=lambda moment: moment.at)
    if status.finished is None and status.run is None:
        found.append(Moment(kind=MomentKind.WAITS, at=now, text=details.why.sentence))
        # Times of a producer's clock may be later than the server's: the present is still the last.
        found.sort(key=lambda moment: (moment.is_expected, moment.kind is MomentKind.WAITS, moment.at))
    return tuple(found)
