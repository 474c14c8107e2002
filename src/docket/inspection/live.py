"""The state of a docket for a live view. Counts and running tasks come from queries, rates and
failures from events."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from docket._aio import cancel_and_wait
from docket.errors import DocketError
from docket.execution.context import DocketContext
from docket.execution.events import read_event
from docket.execution.progress import read_progress
from docket.ledger.fleet import worker_name
from docket.ledger.queries import CensusRow, FoundTask
from docket.ledger.tasks import UnknownFunction
from docket.model.states import ExecutionState
from docket.model.times import from_ms
from docket.storage.subscriptions import OnEvent, tap_events

from .snapshot import WorkerInfo, arguments_in_words, list_tasks, read_workers
from .statistics import Stats, read_statistics

# How long to wait for the subscription. Without it there are no events, but all else works.
LISTEN_SECONDS = 5.0


@asynccontextmanager
async def tapped_events(
    docket: DocketContext, on_event: OnEvent, on_refused: Callable[[str | None], None]
) -> AsyncGenerator[None]:
    """Calls `on_event` with the key and the message of every event within the context. Anybody may
    have published an event, so it is only shown. `on_refused` gets the reason if the server does
    not permit to listen."""
    ready = asyncio.Event()
    listener = asyncio.create_task(
        tap_events(docket.server, docket.keys, on_event, ready, on_refused), name=f"{docket.name} - event tap"
    )
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ready.wait(), LISTEN_SECONDS)
        yield
    finally:
        await cancel_and_wait([listener], "docket: nobody listens any longer")


# The most running tasks and failures in the view.
SHOWN_RUNNING, SHOWN_FAILURES = 100, 20
# How far back failing functions are shown.
RECENT = timedelta(minutes=5)
# The number of refreshes whose rates are kept.
REMEMBERED = 120


@dataclass
class Running:
    """A running task."""

    key: str
    function: str
    worker: str
    started: datetime
    attempt: int
    current: int | None = None
    total: int = 100
    message: str | None = None
    # The `Logged` arguments.
    arguments: str = ""


@dataclass
class RecentFailure:
    """A task that failed while the observer was listening."""

    at: datetime
    key: str
    error: str
    function: str = "?"


@dataclass
class Totals:
    """The number of events since the beginning."""

    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.cancelled


@dataclass
class LiveRates:
    """Tasks per second since the last refresh."""

    started: float = 0.0
    ended: float = 0.0
    failed: float = 0.0
    added: float = 0.0


@dataclass
class LiveState:
    """The content of a live view."""

    census: CensusRow | None = None
    workers: list[WorkerInfo] = field(default_factory=list[WorkerInfo])
    unknown: list[UnknownFunction] = field(default_factory=list[UnknownFunction])
    running: list[Running] = field(default_factory=list[Running])
    failures: deque[RecentFailure] = field(default_factory=lambda: deque[RecentFailure](maxlen=SHOWN_FAILURES))
    totals: Totals = field(default_factory=Totals)
    rates: LiveRates = field(default_factory=LiveRates)
    # What ended in the last minutes.
    recent: Stats | None = None
    ended_rates: deque[float] = field(default_factory=lambda: deque[float](maxlen=REMEMBERED))
    trouble: str | None = None
    # Why there are no events, and so no rates and failures: the server does not permit to listen.
    refused: str | None = None

    @property
    def now(self) -> datetime:
        return from_ms(self.census.server_ms) if self.census is not None else datetime.now().astimezone()


def _progress_of(event: dict[str, Any]) -> tuple[int | None, int, str | None]:
    return event.get("current"), event.get("total", 100), event.get("message")


# Forged events must not fill the memory.
MOST_PROGRESS = 10_000


class Observer:
    """Queries the docket at each refresh, and counts its events in between."""

    def __init__(self, docket: DocketContext) -> None:
        self._docket = docket
        self.state: LiveState = LiveState()
        self._progress: dict[str, tuple[int | None, int, str | None]] = {}
        self._unnamed: list[RecentFailure] = []
        self._at = time.monotonic()
        self._before = Totals()
        self._unfinished: int | None = None

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        """Counts all events within the context."""
        async with tapped_events(self._docket, self.on_event, self._on_refused):
            yield

    def _on_refused(self, refusal: str | None) -> None:
        self.state.refused = refusal

    def on_event(self, key: str, message: bytes) -> None:
        """Counts an event. Anybody may have published it, so it is only shown."""
        event = read_event(message)
        if event is None:
            return
        if event["type"] == "progress":
            if key in self._progress or len(self._progress) < MOST_PROGRESS:
                self._progress[key] = _progress_of(event)
            return
        state, totals = event["state"], self.state.totals
        if state == ExecutionState.RUNNING.value:
            totals.started += 1
            return
        self._progress.pop(key, None)
        if state == ExecutionState.COMPLETED.value:
            totals.completed += 1
        elif state == ExecutionState.CANCELLED.value:
            totals.cancelled += 1
        elif state == ExecutionState.FAILED.value:
            totals.failed += 1
            failure = RecentFailure(datetime.now().astimezone(), key, event.get("error") or "")
            self.state.failures.append(failure)
            self._unnamed.append(failure)

    async def refresh(self) -> None:
        """Reads the state from the server. If the server does not answer, `trouble` has the error
        and the other values do not change."""
        try:
            await self._read()
            self.state.trouble = None
        except DocketError as error:
            self.state.trouble = str(error)
            await self._revive()
        self._note_rates()

    async def _revive(self) -> None:
        """Restarts an embedded server that died. Does nothing for any other server."""
        with contextlib.suppress(DocketError):
            await self._docket.server.revive()

    async def _read(self) -> None:
        docket, state = self._docket, self.state
        running = [ExecutionState.RUNNING]
        state.census, state.workers, listing = await asyncio.gather(
            docket.ledger.queries.census(),
            read_workers(docket.ledger),
            list_tasks(docket.ledger, running, SHOWN_RUNNING),
        )
        state.unknown = await docket.ledger.tasks.unknown_functions() if state.census.unknown else []
        state.recent = await read_statistics(docket, None, RECENT, None)
        await asyncio.gather(*(self._read_progress(row) for row in listing.tasks))
        state.running = sorted((self._running(row) for row in listing.tasks), key=lambda task: task.started)
        await self._name_failures()

    def _running(self, row: FoundTask) -> Running:
        assert row.run is not None
        task = Running(
            row.key, row.task.function_name, worker_name(row.run.worker), from_ms(row.run.started_ms), row.task.attempt
        )
        task.arguments = arguments_in_words(row)
        task.current, task.total, task.message = self._progress.get(row.key, (None, 100, None))
        return task

    async def _read_progress(self, row: FoundTask) -> None:
        """Reads the progress of a task that may have made progress before the observer listened.
        Tasks that started less than a second ago are skipped."""
        assert row.run is not None
        assert self.state.census is not None
        if row.key in self._progress or self.state.census.server_ms - row.run.started_ms < 1000:
            return
        stored = (await self._docket.ledger.tasks.get(row.key)).progress
        self._progress[row.key] = _progress_of(read_progress(stored) if stored else {})

    async def _name_failures(self) -> None:
        """Adds the function names to the last failures, because events have only the key."""
        unnamed, self._unnamed = self._unnamed[-SHOWN_FAILURES:], []
        statuses = await asyncio.gather(*(self._docket.ledger.tasks.get(failure.key) for failure in unnamed))
        for failure, status in zip(unnamed, statuses, strict=True):
            record = status.task or (status.finished.task if status.finished else None)
            if record is not None:
                failure.function = record.function_name

    def _note_rates(self) -> None:
        now, state = time.monotonic(), self.state
        seconds, self._at = max(now - self._at, 0.001), now
        totals, before = state.totals, self._before
        ended = totals.ended - before.ended
        state.rates = LiveRates(
            (totals.started - before.started) / seconds, ended / seconds, (totals.failed - before.failed) / seconds
        )
        if state.census is not None:
            if self._unfinished is not None:
                state.rates.added = max(state.census.unfinished - self._unfinished + ended, 0) / seconds
            self._unfinished = state.census.unfinished
        state.ended_rates.append(state.rates.ended)
        self._before = Totals(totals.started, totals.completed, totals.failed, totals.cancelled)
