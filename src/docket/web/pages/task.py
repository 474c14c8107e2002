"""The life of a task as a list of events, the earliest first."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.dead import Letter
from docket.docket import Docket
from docket.inspection.reasons import Reason
from docket.inspection.task import TaskDetails, TaskView, read_task_view, trace_id
from docket.model.states import ExecutionState
from docket.web.page_request import PageRequest, WebPage

from .formats import duration

# Gaps below this are not worth a word.
_SHORT_SECONDS = 0.05
# A producer's clock may be a little ahead of the server's.
_AT_ONCE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, or that will. `tint` is the state whose colour it has."""

    title: str
    tint: str
    at: datetime | None = None
    text: str = ""
    worker: str | None = None
    error: str | None = None
    is_now: bool = False
    is_to_come: bool = False


def time_line(details: TaskDetails | None, letter: Letter | None, now: datetime) -> tuple[Event, ...]:
    events: list[Event] = []
    if details is not None:
        events += _attempts(details)
        events += _present(details, now)
    if letter is not None:
        events += _letter(letter, details)
    return tuple(events)


def is_due_at_once(details: TaskDetails) -> bool:
    """Whether the task was due when it was added."""
    return details.added_at is not None and details.attempt == 1 and details.due - details.added_at < _AT_ONCE


def _added(details: TaskDetails) -> list[Event]:
    if details.added_at is None:
        return []
    words = "It was due at once." if is_due_at_once(details) else ""
    return [Event("Added", "quiet", details.added_at, words)]


def _attempts(details: TaskDetails) -> list[Event]:
    """The points of the time-line before the present attempt. A retry has a due time of its own, so
    the first due time is known only for the first attempt."""
    events = _added(details)
    if details.attempt == 1 and details.state is not ExecutionState.SCHEDULED and not is_due_at_once(details):
        events.append(Event("Due", "queued", details.due, "From this time on it was ready to run."))
    hidden = details.attempt - 1 - len(details.failed_attempts)
    if hidden > 0 and details.failed_attempts:
        events.append(Event(f"{hidden} earlier attempts failed", "quiet", None, "The last ten are kept."))
    for failed in details.failed_attempts:
        took = duration((failed.failed_at - failed.started_at).total_seconds())
        title = f"Attempt {failed.attempt} began"
        events.append(Event(title, "running", failed.started_at, "", failed.worker))
        events.append(
            Event(f"Attempt {failed.attempt} failed after {took}", "failed", failed.failed_at, error=failed.error)
        )
    return events


def _present(details: TaskDetails, now: datetime) -> list[Event]:
    if details.state in (ExecutionState.SCHEDULED, ExecutionState.QUEUED):
        return _waiting(details)
    events: list[Event] = []
    if details.started_at is not None:
        waited = (details.started_at - details.due).total_seconds()
        words = f"It had waited for {duration(waited)}." if waited > _SHORT_SECONDS else "It started at once."
        title = "Claimed" if details.attempt == 1 else f"Attempt {details.attempt} began"
        if details.redelivered:
            words += " An earlier run of this attempt was lost or given back."
        if details.waited:
            words += f" {details.waited}"
        events.append(Event(title, "running", details.started_at, words, details.worker))
    if details.state is ExecutionState.RUNNING:
        since = details.started_at or now
        words = "A cancel was requested." if details.cancel_requested else ""
        title = f"Running for {duration(max((now - since).total_seconds(), 0.0))}"
        return [*events, Event(title, "running", None, words, is_now=True)]
    return [*events, _ended(details)]


def _waiting(details: TaskDetails) -> list[Event]:
    reasons = (details.why, *details.why.also)
    events = [_because(reason, is_first=reason is details.why) for reason in reasons]
    if details.state is ExecutionState.SCHEDULED:
        title = "Due" if details.attempt == 1 else f"Attempt {details.attempt} is due"
        events.append(Event(title, "scheduled", details.due, is_to_come=True))
    return events


def _because(reason: Reason, *, is_first: bool) -> Event:
    title = "Waits because" if is_first else "And because"
    tint = (reason.state or ExecutionState.QUEUED).value
    return Event(title, tint, reason.since, reason.sentence, is_now=is_first)


def _ended(details: TaskDetails) -> Event:
    words = ""
    if details.started_at is not None and details.completed_at is not None:
        words = f"It ran for {duration(max((details.completed_at - details.started_at).total_seconds(), 0.0))}."
    title = {ExecutionState.COMPLETED: "Completed", ExecutionState.CANCELLED: "Cancelled"}.get(details.state, "Failed")
    return Event(title, details.state.value, details.completed_at, words, details.worker, details.error)


def _letter(letter: Letter, details: TaskDetails | None) -> list[Event]:
    events: list[Event] = []
    if details is None:
        if letter.started_at is not None:
            events.append(Event(f"Attempt {letter.attempts} began", "running", letter.started_at, "", letter.worker))
        events.append(Event("Failed for good", "failed", letter.died_at, error=_error(letter)))
    elif details.state is not ExecutionState.FAILED:
        # The key is in use again.
        events.insert(
            0, Event("An earlier task of this key failed for good", "failed", letter.died_at, error=_error(letter))
        )
        return events
    events.append(Event("Kept as a dead letter", "quiet", None, f"until {letter.ends_at:%Y-%m-%d %H:%M} UTC"))
    return events


def _error(letter: Letter) -> str:
    return f"{letter.error}: {letter.text}" if letter.text else letter.error


_WAITING = (ExecutionState.SCHEDULED, ExecutionState.QUEUED)


@dataclass(frozen=True, slots=True)
class ShownTask:
    """All that the page shows. A key without a record has only a reason."""

    key: str
    view: TaskView | None
    letter: Letter | None
    why: Reason
    events: tuple[Event, ...]

    @property
    def details(self) -> TaskDetails | None:
        return self.view.details if self.view is not None else None

    @property
    def now(self) -> datetime:
        return self.why.taken

    @property
    def is_waiting(self) -> bool:
        return self.details is not None and self.details.state in _WAITING

    @property
    def is_scheduled(self) -> bool:
        return self.details is not None and self.details.state is ExecutionState.SCHEDULED

    @property
    def is_running(self) -> bool:
        return self.details is not None and self.details.state is ExecutionState.RUNNING

    @property
    def trace_id(self) -> str | None:
        if self.view is not None and self.view.trace is not None:
            return trace_id(self.view.trace)
        return trace_id(self.letter.trace) if self.letter is not None else None

    @property
    def result(self) -> str | None:
        """The value of the result, if it can be shown: as JSON."""
        found = self.view.result if self.view is not None else None
        if found is None or not found.has_value:
            return None
        return json.dumps(found.value, ensure_ascii=False, indent=2)


async def answer(page_request: PageRequest) -> Response:
    key = page_request.query.get("key")
    if key is None:
        raise HTTPException(404, "The address has no key of a task.")
    task = await read_task(page_request.docket, key)
    return page_request.render("task.html", status=200 if task.view or task.letter else 404, task=task)


async def read_task(docket: Docket, key: str) -> ShownTask:
    view, letter = await asyncio.gather(read_task_view(docket, key), docket.dead.get(key))
    details = view.details if view is not None else None
    reason = details.why if details is not None else await docket.why(key)
    return ShownTask(key, view, letter, reason, time_line(details, letter, reason.taken))


PAGE = WebPage("task", answer)
