"""Waiting for a task without polling: subscribe first, then read, then listen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict

from docket.errors import ResultExpired, ServerUnreachable, TaskNotFound
from docket.ledger import TaskStatus, read_ending, read_failed_attempts
from docket.ledger.fleet import worker_name
from docket.model.states import ExecutionState
from docket.model.times import check_durations, from_ms
from docket.storage.records import FinishedRecord, TaskRecord

from .context import DocketContext, note_wait
from .events import announces_end, is_ending, read_ending_message, read_event
from .progress import ProgressEvent, progress_event, read_progress

# How often a waiter reads the task again, in case the message was lost with a connection.
SAFETY_SECONDS = 15.0
OUTAGE_SECONDS = 0.5
# After a message that may tell of an end and does not prove it, the task is read: once in this time
# at most.
DOUBT_SECONDS = 1.0
_MILLISECOND = timedelta(milliseconds=1)
# The submission counter wraps at this number.
_SUBMISSIONS = 2**32


class StateEvent(TypedDict):
    """A change of a task's state."""

    type: Literal["state"]
    key: str
    state: ExecutionState
    when: str | None
    worker: str | None
    started_at: str | None
    completed_at: str | None
    error: str | None


@contextlib.asynccontextmanager
async def listening(docket: DocketContext, key: str) -> AsyncGenerator[asyncio.Queue[bytes | None]]:
    """A queue of the events of one task from now on. None
    in the queue means that events may be missing."""
    inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
    channel, subscriptions = docket.ledger.keys.task_channel(key), docket.subscriptions
    listener = inbox.put_nowait
    await subscriptions.listen(channel, listener)
    subscriptions.on_gap(inbox, lambda: inbox.put_nowait(None))
    try:
        yield inbox
    finally:
        subscriptions.forget_gap(inbox)
        subscriptions.unlisten(channel, listener)


def seconds_to_wait(docket: DocketContext, timeout: timedelta | None, deadline: datetime | None) -> float | None:
    """How long `get_result` waits; None is for ever. Raises TypeError or ValueError for arguments
    that cannot be used."""
    if timeout is not None and deadline is not None:
        raise ValueError("give a timeout or a deadline, not both")
    if timeout is not None:
        check_durations("get_result", timeout=timeout)
    if deadline is not None:
        if not isinstance(deadline, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise TypeError(f"get_result(deadline={deadline!r}): a deadline is a datetime")
        timeout = deadline.astimezone(UTC) - docket.now()
    return timeout.total_seconds() if timeout is not None else None


async def wait_finished(
    docket: DocketContext, key: str, timeout: float | None, *, generation: int = 0, expect_to_wait: bool = False
) -> FinishedRecord:
    """Waits for the finished record of a task. Raises TimeoutError if the task does not end in
    time, and ResultExpired if there is no task to wait for.

    Endings of an earlier `generation` of the key are ignored: a subscription that lags may still
    deliver one. A later generation is the replacement, whose ending counts. Callers that just
    scheduled the task pass `expect_to_wait=True` to skip the first lookup.
    """
    must_not_wait = timeout is not None and timeout <= 0
    if must_not_wait or not expect_to_wait:
        status = await docket.ledger.tasks.get(key)
        if status.finished is not None and status.finished.task.generation >= generation:
            return status.finished
        if must_not_wait:
            raise TimeoutError(f"task {key!r} has not finished")
    try:
        async with asyncio.timeout(timeout), listening(docket, key) as inbox:
            while True:
                try:
                    status = await docket.ledger.tasks.get(key, to_wait=True)
                except ServerUnreachable:
                    # The server was reachable before, so wait until the outage is over.
                    await asyncio.sleep(OUTAGE_SECONDS)
                    continue
                if status.finished is not None and status.finished.task.generation >= generation:
                    return status.finished
                if status.task is None:
                    raise ResultExpired(
                        f"there is no record of task {key!r}: it expired, was never scheduled, or the docket keeps none "
                        "(execution_ttl=0)"
                    )
                if status.run is None:
                    note_wait(docket, key)
                finished = await _next_ending(docket, key, inbox, generation, status)
                if finished is not None:
                    return finished
    except ResultExpired:
        raise
    except TimeoutError:
        raise TimeoutError(f"task {key!r} has not finished") from None


async def _next_ending(
    docket: DocketContext, key: str, inbox: asyncio.Queue[bytes | None], generation: int, status: TaskStatus
) -> FinishedRecord | None:
    """Waits for a message that proves the end of a run. Returns its record, or None if the caller
    must read the task again: the message has no record, messages may be missing or forged, or
    SAFETY_SECONDS have passed."""
    assert status.task is not None
    deadline = Deadline()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline.at) as limit:
            while True:
                message = await inbox.get()
                if message is None:
                    return None
                ending = read_ending_message(status.secret, key, message) if is_ending(message) else None
                if ending is None:
                    if deadline.notice(docket, message):
                        limit.reschedule(deadline.at)
                    continue
                finished = ending.record
                if finished is None:
                    return None
                if finished.task.generation >= generation and not _is_earlier(finished.task, status.task):
                    return finished
    return None


class Deadline:
    """When a waiter reads the task again. It has just read it."""

    def __init__(self) -> None:
        self._read_at = asyncio.get_running_loop().time()
        self.at: float = self._read_at + SAFETY_SECONDS

    def notice(self, docket: DocketContext, message: bytes) -> bool:
        """Takes note of a message that proves nothing. Returns whether the deadline is sooner now.

        The event of an end is followed by the ending with its proof, so it gets some time."""
        now = asyncio.get_running_loop().time()
        if is_ending(message):
            docket.subscriptions.ignored.note("an ending")
            sooner = max(now, self._read_at + DOUBT_SECONDS)
        elif announces_end(message):
            sooner = now + DOUBT_SECONDS
        else:
            if read_event(message) is None:
                docket.subscriptions.ignored.note("a task")
            return False
        changed, self.at = sooner < self.at, min(sooner, self.at)
        return changed


def _is_earlier(task: TaskRecord, seen: TaskRecord) -> bool:
    """Whether a task was submitted before the task that was seen. The generation alone does not
    tell if no records are kept, because it is the same for both."""
    if task.generation != seen.generation:
        return task.generation < seen.generation
    return (task.submission - seen.submission) % _SUBMISSIONS >= _SUBMISSIONS // 2


async def watch(
    docket: DocketContext, key: str, ready: asyncio.Event | None = None
) -> AsyncGenerator[StateEvent | ProgressEvent]:
    """Yields the current state and progress of a task, then every event until the task has ended.
    Raises TaskNotFound if there is no such task."""
    async with listening(docket, key) as inbox:
        if ready is not None:
            ready.set()
        seen = await _read(docket, key)
        yield seen.state
        yield seen.progress
        # An event that was published between the subscription
        # and the read repeats the state that the read returned.
        may_repeat = True
        deadline = Deadline()
        while not seen.ended:
            message = await _message(inbox, deadline.at)
            ending = read_ending_message(seen.secret, key, message) if message and is_ending(message) else None
            if message is None or (ending is not None and ending.record is None):
                for event in await _read_again(docket, seen):
                    yield event
                deadline = Deadline()
            elif ending is not None and ending.record is not None:
                if not _is_earlier(ending.record.task, seen.task):
                    seen.state, may_repeat = _state_event(key, TaskStatus(finished=ending.record)), False
                    seen.ended = not ending.goes_on
                    yield seen.state
            elif (event := read_event(message)) is None or announces_end(message):
                deadline.notice(docket, message)
            elif event["type"] == "progress":
                seen.progress = progress_event(key, event)
                yield seen.progress
            else:
                before, seen.state = seen.state, _merge(seen.state, event)
                if not (may_repeat and _is_repeated(before, seen)):
                    may_repeat = False
                    yield seen.state


def _is_repeated(before: StateEvent, now: _Seen) -> bool:
    """Whether an event repeats the previous state. Events have whole milliseconds, so times are
    compared with that precision."""
    state = now.state
    if state["state"].finished or (state["state"], state["started_at"]) != (before["state"], before["started_at"]):
        return False
    if state["when"] is None or before["when"] is None:
        return state["when"] == before["when"]
    return abs(datetime.fromisoformat(state["when"]) - datetime.fromisoformat(before["when"])) < _MILLISECOND


@dataclass(slots=True)
class _Seen:
    """The last state and progress that a watcher has yielded."""

    state: StateEvent
    progress: ProgressEvent
    task: TaskRecord
    ended: bool
    secret: bytes | None


async def _read(docket: DocketContext, key: str) -> _Seen:
    status = await docket.ledger.tasks.get(key, to_wait=True)
    task = status.task or (status.finished.task if status.finished else None)
    if task is None:
        raise TaskNotFound(f"there is no task {key!r}: it was never scheduled, or it has ended and its record is gone")
    stored = status.progress or (status.finished.progress if status.finished else None)
    progress = progress_event(key, read_progress(stored) if stored else {})
    return _Seen(_state_event(key, status), progress, task, status.task is None, status.secret)


async def _read_again(docket: DocketContext, seen: _Seen) -> list[StateEvent | ProgressEvent]:
    """The changes since the last event, as far as the records
    still show them. Returns none during an outage."""
    try:
        now = await _read(docket, seen.state["key"])
    except ServerUnreachable:
        return []
    missed: list[StateEvent | ProgressEvent] = []
    if any(now.state[name] != seen.state[name] for name in ("state", "started_at")):
        missed.append(now.state)
    if now.progress != seen.progress:
        missed.append(now.progress)
    seen.state, seen.progress, seen.task, seen.ended = now.state, now.progress, now.task, now.ended
    seen.secret = now.secret
    return missed


async def _message(inbox: asyncio.Queue[bytes | None], deadline: float) -> bytes | None:
    """The next message, or None if the caller must read the task again."""
    try:
        async with asyncio.timeout_at(deadline):
            return await inbox.get()
    except TimeoutError:
        return None


def _state_event(key: str, status: TaskStatus) -> StateEvent:
    event: StateEvent = {
        "type": "state",
        "key": key,
        "state": ExecutionState.SCHEDULED,
        "when": None,
        "worker": None,
        "started_at": None,
        "completed_at": None,
        "error": None,
    }
    task = status.task or (status.finished.task if status.finished else None)
    if task is not None:
        event["state"] = task.state
        event["when"] = from_ms(task.due_ms).isoformat()
        if status.run is None and status.failed_attempts is not None:
            failed = read_failed_attempts(status.failed_attempts)
            event["error"] = failed[-1].error if failed else None
    if status.run is not None:
        event["state"] = ExecutionState.RUNNING
        event["worker"] = worker_name(status.run.worker)
        event["started_at"] = from_ms(status.run.started_ms).isoformat()
    if status.finished is not None:
        ending = read_ending(status.finished.tail)
        event["state"] = status.finished.state
        event["worker"], event["error"] = ending.worker, ending.error
        event["started_at"] = from_ms(status.finished.started_ms).isoformat() if status.finished.started_ms else None
        event["completed_at"] = from_ms(status.finished.completed_ms).isoformat()
    return event


def _merge(before: StateEvent, message: dict[str, Any]) -> StateEvent:
    """The state after an event, which has only the changed fields. A task that waits again has no
    worker and no times, and an error only if it waits for a retry."""
    state = ExecutionState(message["state"])
    event: StateEvent = {**before, "state": state}
    if state in (ExecutionState.SCHEDULED, ExecutionState.QUEUED):
        event.update(worker=None, started_at=None, completed_at=None, error=None)
    for name in ("when", "started_at", "completed_at"):
        if message.get(name):
            event[name] = from_ms(message[name]).isoformat()
    for name in ("worker", "error"):
        if message.get(name) is not None:
            event[name] = message[name]
    return event
