"""One task: its record, its runs, its times, and why it waits or waited."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from docket.codec.codecs import CODEC_IDS
from docket.codec.envelopes import ENCRYPTED, HEADER_SIZE, SIGNED
from docket.codec.payloads import read_trace, shown_arguments
from docket.execution.context import DocketContext
from docket.execution.progress import read_progress
from docket.ledger import FailedAttempt, TaskStatus, read_ending, read_failed_attempts
from docket.ledger.letters import finished_record
from docket.ledger.statistics import Sample
from docket.model.places import RARE_PLACES, Place, words_of
from docket.model.states import ExecutionState
from docket.model.times import from_ms, to_ms
from docket.storage.records import FinishedRecord, TaskRecord
from docket.storage.schema.statistics import MINUTE_MS

from .reasons import Reason, as_plain
from .results import ResultView, read_result, traceback_in_letter, traceback_of
from .summaries import place_of
from .why import read_reason, shown_worker

# A key that docket has generated begins with the time of the producer's clock (model/task_keys.py).
_GENERATED = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# How far the clocks of producers may be from the server's clock, and how late an entry may come
# after the script has asked for the time.
_CLOCKS_US, _ENTRY_US = 60_000_000, 10_000
# The number of a submission is the time of the first one, in microseconds, without its upper bits.
_CYCLE_US = 2**32


def added_at(key: str, task: TaskRecord) -> datetime | None:
    """When the task was added, by the server's clock; None if that is not known.

    The record has the lower bits of the time (`submission`); it repeats every 71 minutes. A key
    that docket generated, or the entry of a task that was ready at once, says in which of them. A
    task with a key of its own that was scheduled for later has neither.
    """
    generated = _GENERATED.fullmatch(key)
    if generated is not None:
        found = _near(int(generated[1] + generated[2], 16) * 1000, task.submission, _CLOCKS_US)
        if found is not None:
            return found
    return _near(int(task.entry_ms * 1000), task.submission, _ENTRY_US) if task.entry_ms else None


def _near(about_us: int, submission: int, most_us: int) -> datetime | None:
    """The time of that submission that is nearest to another time, if it is near enough."""
    off = (submission - about_us + _CYCLE_US // 2) % _CYCLE_US - _CYCLE_US // 2
    return from_ms((about_us + off) / 1000) if abs(off) <= most_us else None


# Shorter waits need no explanation.
WORTH_A_WORD = timedelta(seconds=1)
# Samples are taken about once a minute. Without a worker there are none.
_GAP_MINUTES = 3


async def explain_wait(docket: DocketContext, due: datetime, started: datetime) -> str | None:
    """The work of the docket from the due time to the claim, in one sentence; None if the
    wait was short, or if nothing is known: the samples of the last 200 minutes are kept."""
    if started - due < WORTH_A_WORD:
        return None
    first, last = (int(to_ms(at) // MINUTE_MS) for at in (due, started))
    samples = await docket.ledger.statistics.samples(first, last)
    if not samples:
        return None
    return _in_words(samples, last - first + 1)


def _in_words(samples: Sequence[Sample], minutes: int) -> str:
    busiest = max(samples, key=lambda sample: sample.ready)
    ready = "no task was" if not busiest.ready else "1 task was" if busiest.ready == 1 else f"{busiest.ready:,} were"
    words = [f"{ready} ready and {busiest.running or 'none'} ran"]
    for place in RARE_PLACES:
        if count := max(sample.at(place) for sample in samples):
            words.append(f"{count:,} {words_of(place).past}")
    sentence = f"On the docket at that time: {', '.join(words)}."
    missing = minutes - len(samples)
    if missing >= _GAP_MINUTES:
        sentence += f" For about {missing} minutes no worker took a sample: perhaps none was there."
    return sentence


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_id(context: Mapping[str, str] | None) -> str | None:
    """The id in a W3C trace context, or None. Anybody may have written the context."""
    found = _TRACEPARENT.fullmatch(str((context or {}).get("traceparent", "")))
    return found[1] if found is not None else None


_CODEC_NAMES = {id: name for name, id in CODEC_IDS.items()}


@dataclass(frozen=True, kw_only=True)
class TaskProgress:
    """How far a run has come."""

    current: int | None
    total: int
    message: str | None
    updated_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class TaskDetails:
    """One task, finished or not. What does not apply, or is not known, is None."""

    docket: str
    key: str
    function: str
    state: ExecutionState
    due: datetime
    attempt: int
    generation: int
    # How many workers were lost while they ran this attempt, and whether its body has begun before.
    losses: int
    redelivered: bool
    # The arguments that the function marks as `Logged`, as text, if they are in the record.
    arguments: dict[str, str] | None
    arguments_bytes: int
    arguments_stored_apart: bool
    # How the arguments are stored: pickle or json, and plain, signed or encrypted.
    codec: str | None
    sealed: str | None
    worker: str | None = None
    # When it was added, by the server's clock, if that is known.
    added_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    # The work of the docket from the due time to the claim, in one sentence; None if unknown.
    waited: str | None = None
    cancel_requested: bool = False
    progress: TaskProgress | None = None
    # The attempts that failed before this one, the last ten.
    failed_attempts: tuple[FailedAttempt, ...] = ()
    error: str | None = None
    traceback: str | None = None
    why: Reason

    def as_json(self) -> dict[str, Any]:
        """The details for programs: plain values, times
        in ISO 8601. All fields are always there."""
        return as_plain(self)


async def read_details(docket: DocketContext, key: str) -> TaskDetails | None:
    """All about the task of that key, or None if there is none. Raises Undecodable if its finished
    record or its dead letter cannot be read."""
    found = await details_of(docket, key)
    return found[0] if found is not None else None


async def details_of(docket: DocketContext, key: str) -> tuple[TaskDetails, TaskStatus] | None:
    """The details of a task, and the records from which they follow."""
    reason, facts = await read_reason(docket, key)
    status = await docket.ledger.tasks.get(key)
    letter = None
    if status.task is None and status.finished is None and (letter := facts.read_letter()) is not None:
        # The finished record has expired. The dead letter is kept for longer.
        status.finished = finished_record(letter)
    task = status.task or (status.finished.task if status.finished else None)
    if task is None:
        return None
    envelope = facts.envelope if status.task else _envelope(task.call)
    common: dict[str, Any] = {
        "docket": docket.name,
        "key": key,
        "function": task.function_name,
        "added_at": added_at(key, task),
        "due": from_ms(task.due_ms),
        "attempt": task.attempt,
        "generation": task.generation,
        "losses": task.losses,
        "redelivered": task.redelivered,
        "arguments": shown_arguments(task.call) if task.reference is None else None,
        "arguments_bytes": task.call_size,
        "arguments_stored_apart": task.reference is not None,
        **_sealing(envelope),
        "progress": _progress(status),
        "failed_attempts": read_failed_attempts(status.failed_attempts),
        "why": reason,
    }
    if status.finished is not None:
        found = _ending(status.finished)
        if letter is not None:
            found["traceback"] = traceback_in_letter(docket, letter)
        elif status.finished.state is ExecutionState.FAILED:
            found["traceback"] = await traceback_of(docket, key, status.finished)
    else:
        found = _run(status, task)
    started: datetime | None = found.get("started_at")
    waited = await explain_wait(docket, common["due"], started) if started is not None else None
    return TaskDetails(**common, **found, waited=waited), status


def _run(status: TaskStatus, task: TaskRecord) -> dict[str, Any]:
    run = status.run
    if run is None:
        return {"state": task.state}
    return {
        "state": ExecutionState.RUNNING,
        "worker": shown_worker(run.worker),
        "started_at": from_ms(run.started_ms),
        "cancel_requested": run.cancel_asked,
    }


def _ending(record: FinishedRecord) -> dict[str, Any]:
    ending = read_ending(record.tail)
    return {
        "state": record.state,
        "worker": ending.worker,
        "started_at": from_ms(record.started_ms) if record.started_ms else None,
        "completed_at": from_ms(record.completed_ms),
        "error": ending.error,
    }


def _progress(status: TaskStatus) -> TaskProgress | None:
    stored = status.progress or (status.finished.progress if status.finished else None)
    return as_progress(read_progress(stored)) if stored else None


def as_progress(found: Mapping[str, Any]) -> TaskProgress | None:
    """The progress that an event tells, or None if it tells nothing."""
    if not found:
        return None
    updated = found.get("updated_at")
    return TaskProgress(
        current=found.get("current"),
        total=found.get("total", 100),
        message=found.get("message"),
        updated_at=from_ms(updated) if isinstance(updated, int | float) else None,
    )


def _envelope(call: bytes) -> bytes:
    """The header of the envelope, which follows the trace context."""
    at = 2 + int.from_bytes(call[:2], "little")
    return call[at : at + HEADER_SIZE]


def _sealing(envelope: bytes) -> dict[str, str | None]:
    if len(envelope) < HEADER_SIZE:
        return {"codec": None, "sealed": None}
    _, codec_id, flags = envelope
    return {
        "codec": _CODEC_NAMES.get(codec_id),
        "sealed": {0: "plain", SIGNED: "signed", ENCRYPTED: "encrypted"}.get(flags),
    }


class MomentKind(enum.StrEnum):
    """The kind of an event in the life of a task."""

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


async def read_task_view(docket: DocketContext, key: str) -> TaskView | None:
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
