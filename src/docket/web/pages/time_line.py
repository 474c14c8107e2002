"""The life of a task as a list of events, the earliest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from docket.dead import Letter
from docket.inspection.reasons import Reason
from docket.inspection.task import TaskDetails
from docket.model.states import ExecutionState

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
    """What happened before the present attempt. A retry has a due time of its own, so the first due
    time is known only for the first attempt."""
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
