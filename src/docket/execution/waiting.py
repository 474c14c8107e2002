"""Waiting for a task without polling: subscribe first, then read, then listen."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from docket.errors import ResultExpired, ServerUnreachable, TaskNotFound
from docket.ledger import TaskStatus, read_ending
from docket.ledger.workers import worker_name
from docket.model.states import ExecutionState
from docket.model.times import from_ms
from docket.storage.records import FinishedRecord, TaskRecord, read_finished

from .progress import ProgressEvent, progress_event, read_progress
from .run_context import note_wait

if TYPE_CHECKING:
    from .docket_view import DocketView

# A waiter looks for itself this often, in case the message it waits for was lost with a connection.
SAFETY_SECONDS = 15.0
OUTAGE_SECONDS = 0.5
_MILLISECOND = timedelta(milliseconds=1)
# Submissions are counted modulo this.
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
async def listening(docket: DocketView, key: str) -> AsyncGenerator[asyncio.Queue[bytes | None]]:
    """Events of one task from now on; None means that some may have been missed."""
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


async def wait_finished(
    docket: DocketView, key: str, timeout: float | None, *, generation: int = 0, expect_to_wait: bool = False
) -> FinishedRecord:
    """The finished record of a task. TimeoutError if it does not end in time; ResultExpired if
    there is nothing to wait for.

    Endings of an earlier `generation` of the key are ignored: a subscription that lags may still
    deliver one. A later generation is the replacement, whose ending counts. Callers that just
    scheduled the task pass `expect_to_wait=True` to skip the first lookup.
    """
    in_vain = timeout is not None and timeout <= 0
    if in_vain or not expect_to_wait:
        look = await docket.ledger.get(key)
        if look.finished is not None and look.finished.task.generation >= generation:
            return look.finished
        if in_vain:
            raise TimeoutError(f"task {key!r} has not finished")
    try:
        async with asyncio.timeout(timeout), listening(docket, key) as inbox:
            while True:
                try:
                    look = await docket.ledger.get(key)
                except ServerUnreachable:
                    # It was there, and what we wait for may be
                    # under way: an outage is waited out, too.
                    await asyncio.sleep(OUTAGE_SECONDS)
                    continue
                if look.finished is not None and look.finished.task.generation >= generation:
                    return look.finished
                if look.task is None:
                    raise ResultExpired(
                        f"there is no record of task {key!r}: it expired, was never scheduled, or the docket keeps none "
                        "(execution_ttl=0)"
                    )
                if look.run is None:
                    note_wait(docket, key)
                told = await _something_decisive(inbox, generation, look.task)
                if told is not None:
                    return told
    except ResultExpired:
        raise
    except TimeoutError:
        raise TimeoutError(f"task {key!r} has not finished") from None


async def _something_decisive(
    inbox: asyncio.Queue[bytes | None], generation: int, seen: TaskRecord
) -> FinishedRecord | None:
    """Returns when an event says that the task has ended, with the record if that came along, or
    when it is time to look."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SAFETY_SECONDS):
            while True:
                message = await inbox.get()
                if message is None:
                    return None
                text, _, record = message.partition(b"\n")
                if record:
                    finished = read_finished(record)
                    if finished.task.generation < generation or _is_earlier(finished.task, seen):
                        continue
                    return finished
                event = json.loads(text)
                if event["type"] == "state" and ExecutionState(event["state"]).finished:
                    return None
    return None


def _is_earlier(task: TaskRecord, seen: TaskRecord) -> bool:
    """Whether it was submitted before the task that was seen.
    Where no records are kept, both have the same generation."""
    if task.generation != seen.generation:
        return task.generation < seen.generation
    return (task.submission - seen.submission) % _SUBMISSIONS >= _SUBMISSIONS // 2


async def watch(
    docket: DocketView, key: str, ready: asyncio.Event | None = None
) -> AsyncGenerator[StateEvent | ProgressEvent]:
    """The task's state and progress now, then every event, until the task has ended. Raises
    TaskNotFound if there is none."""
    async with listening(docket, key) as inbox:
        if ready is not None:
            ready.set()
        sight = await _look(docket, key)
        yield sight.state
        yield sight.progress
        # An event that was published between the subscription
        # and the lookup tells what the lookup has shown.
        may_repeat = True
        while not sight.ended:
            message = await _message(inbox)
            if message is None:
                for event in await _look_again(docket, sight):
                    yield event
                continue
            text, _, record = message.partition(b"\n")
            event = json.loads(text)
            if event["type"] == "progress":
                sight.progress = progress_event(key, event)
                yield sight.progress
            elif not record or not _is_earlier(read_finished(record).task, sight.task):
                before, sight.state = sight.state, _merge(sight.state, event)
                if may_repeat and _is_repeated(before, sight):
                    continue
                may_repeat = False
                finished = sight.state["state"].finished and not event.get("goes_on")
                sight.ended = finished and (bool(record) or not await _is_there(docket, key))
                yield sight.state


def _is_repeated(before: StateEvent, now: _Sight) -> bool:
    """Whether a state that does not end the task is the one
    that was shown before. Events tell whole milliseconds."""
    state = now.state
    if state["state"].finished or (state["state"], state["started_at"]) != (before["state"], before["started_at"]):
        return False
    if state["when"] is None or before["when"] is None:
        return state["when"] == before["when"]
    return abs(datetime.fromisoformat(state["when"]) - datetime.fromisoformat(before["when"])) < _MILLISECOND


@dataclass(slots=True)
class _Sight:
    """What a watcher knows of its task."""

    state: StateEvent
    progress: ProgressEvent
    task: TaskRecord
    ended: bool


async def _look(docket: DocketView, key: str) -> _Sight:
    look = await docket.ledger.get(key)
    task = look.task or (look.finished.task if look.finished else None)
    if task is None:
        raise TaskNotFound(f"there is no task {key!r}: it was never scheduled, or it has ended and its record is gone")
    stored = look.progress or (look.finished.progress if look.finished else None)
    progress = progress_event(key, read_progress(stored) if stored else {})
    return _Sight(_state_event(key, look), progress, task, look.task is None)


async def _is_there(docket: DocketView, key: str) -> bool:
    """Whether the key has an unfinished task, so that an
    ending without a record may be that of an earlier one."""
    try:
        return (await docket.ledger.get(key)).task is not None
    except ServerUnreachable:
        return False


async def _look_again(docket: DocketView, sight: _Sight) -> list[StateEvent | ProgressEvent]:
    """What was missed, as far as it can still be seen. An outage is waited out."""
    try:
        now = await _look(docket, sight.state["key"])
    except ServerUnreachable:
        return []
    missed: list[StateEvent | ProgressEvent] = []
    if any(now.state[name] != sight.state[name] for name in ("state", "started_at")):
        missed.append(now.state)
    if now.progress != sight.progress:
        missed.append(now.progress)
    sight.state, sight.progress, sight.task, sight.ended = now.state, now.progress, now.task, now.ended
    return missed


async def _message(inbox: asyncio.Queue[bytes | None]) -> bytes | None:
    """The next message; None if it is time to look."""
    try:
        async with asyncio.timeout(SAFETY_SECONDS):
            return await inbox.get()
    except TimeoutError:
        return None


def _state_event(key: str, look: TaskStatus) -> StateEvent:
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
    task = look.task or (look.finished.task if look.finished else None)
    if task is not None:
        event["state"] = task.state
        event["when"] = from_ms(task.due_ms).isoformat()
    if look.run is not None:
        event["state"] = ExecutionState.RUNNING
        event["worker"] = worker_name(look.run.worker)
        event["started_at"] = from_ms(look.run.started_ms).isoformat()
    if look.finished is not None:
        ending = read_ending(look.finished.tail)
        event["state"] = look.finished.state
        event["worker"], event["error"] = ending.worker, ending.error
        event["started_at"] = from_ms(look.finished.started_ms).isoformat() if look.finished.started_ms else None
        event["completed_at"] = from_ms(look.finished.completed_ms).isoformat()
    return event


def _merge(before: StateEvent, message: dict[str, Any]) -> StateEvent:
    """An event tells what changed; the rest is as before.
    A task that waits again starts with a clean slate."""
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
