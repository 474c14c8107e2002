"""A clock that the test controls: days of retries, delays and cron jobs pass in milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Self

from docket.docket import Docket
from docket.ledger.queries import EVERY_TASK, FoundTask, Source
from docket.model.times import to_ms
from docket.storage.client.urls import ServerKind
from docket.worker import Worker

_POLL_SECONDS = 0.001
_MAX_SKIPS = 10_000


class Clock:
    """Controls the time of all dockets of this process on one `memory://` name, until it is closed.

    The time stands still until the test moves it. When the clock moves, all tasks that become due
    on the way run in order and at their due times, through the same scripts as in production. This
    needs a worker: either the given worker or one that is already running.

    `Timeout`, `asyncio.sleep` and `datetime.now()` still use real time; in the code under test,
    call `docket.now()` or `clock.now()` instead. A worker's `run_until_finished` and `run_at_most`
    do not wait for future tasks: the clock skips to them. Raises ValueError for a docket that is
    not on `memory://`, and RuntimeError if another clock controls that time.
    """

    def __init__(
        self,
        docket: Docket,
        worker: Worker | None = None,
        *,
        at: datetime | None = None,
        patience: timedelta = timedelta(seconds=10),
    ) -> None:
        if docket.server.address.kind is not ServerKind.MEMORY:
            raise ValueError(f"a Clock needs a docket on memory://, not {docket.server.shown_url}")
        self._docket = docket
        self._worker = worker
        self._patience = patience
        self._clock = docket.server.clock
        self._skips = 0
        if self._clock.is_frozen:
            raise RuntimeError(f"another Clock controls the time of {docket.server.shown_url}; close it first")
        self._hold(to_ms(at) if at is not None else self._clock.now_ms())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Returns the dockets to real time."""
        self._clock.release()

    def now(self) -> datetime:
        """The time of the docket, which stands still between two calls of `advance`."""
        return self._clock.now()

    def set(self, when: datetime) -> None:
        """Sets the time, forwards or backwards, without running
        any task. It is meant for the start of a test."""
        self._hold(to_ms(when))

    async def advance(self, by: timedelta = timedelta(0)) -> None:
        """Moves the clock forward by a duration and runs the tasks that become due. Raises the same
        errors as `travel_to`."""
        await self.travel_to(self.now() + by)

    async def travel_to(self, when: datetime) -> None:
        """Moves the clock forward to a time and runs the tasks that become due.

        Raises ValueError for a time in the past, and TimeoutError
        if tasks do not end within `patience` of real time.
        """
        target = math.ceil(to_ms(when))
        if target < self._clock.now_ms():
            raise ValueError(f"{when} has passed on this clock, which shows {self.now()}; to turn it back, use set()")
        async with self._working() as has_worker:
            while True:
                due = await self._run_due_tasks() if has_worker else None
                if due is None or due > target:
                    break
                self._hold(due)
            self._hold(target)
            await self._stage()

    def _hold(self, ms: float) -> None:
        self._clock.hold(math.ceil(ms), self._skip)

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncGenerator[bool]:
        """Runs the given worker. Yields whether the docket has a running worker."""
        worker = self._worker
        if worker is None or worker.is_working:
            yield worker is not None or bool(await self._docket.workers())
            return
        working = asyncio.create_task(worker.run_forever(), name=f"{self._docket.name} - worker of the clock")
        try:
            while not worker.is_working and not working.done():  # noqa: ASYNC110 - the worker has no event for this
                await asyncio.sleep(_POLL_SECONDS)
            yield True
        except BaseException:
            # The current runs may never end. The second stop makes the worker requeue them.
            worker.stop()
            raise
        finally:
            worker.stop()
            await working

    async def _run_due_tasks(self) -> float | None:
        """Waits until all due tasks have ended. Returns the next due time."""
        deadline = time.monotonic() + self._patience.total_seconds()
        while True:
            await self._stage()
            busy, due = await self._docket.ledger.tasks.next_due()
            if not busy and (due is None or due > self._clock.now_ms()):
                return due
            if time.monotonic() > deadline:
                raise TimeoutError(await self._timeout_message())
            await asyncio.sleep(_POLL_SECONDS)

    async def _stage(self) -> None:
        while True:
            moved, _, due, _ = await self._docket.ledger.tasks.stage()
            if not moved or due is None or due > self._clock.now_ms():
                return

    async def _skip(self) -> bool:
        """Moves the clock to the next due time, for a worker that runs until all tasks are
        finished. Returns False if no tasks are left."""
        busy, due = await self._docket.ledger.tasks.next_due()
        if busy:
            await asyncio.sleep(_POLL_SECONDS)
            return True
        if due is None:
            self._skips = 0
            return False
        self._skips += 1
        if self._skips > _MAX_SKIPS:
            raise RuntimeError(
                f"the clock has skipped to future tasks {_MAX_SKIPS:,} times, and more are left: a task that schedules itself "
                "again never finishes; use worker.run_at_most or clock.advance"
            )
        self._hold(max(due, self._clock.now_ms()))
        await self._stage()
        return True

    async def _timeout_message(self) -> str:
        tasks: list[FoundTask] = []
        for source in (Source.RUNNING, Source.QUEUED):
            tasks += (await self._docket.ledger.queries.find(source, EVERY_TASK, None, 100, 100)).tasks
        shown = ", ".join(f"{task.task.function_name} {task.key!r} ({task.state.value})" for task in tasks[:10])
        return (
            f"after {self._patience.total_seconds():g} s the clock still cannot leave {self.now()}: {shown or 'tasks'} "
            "did not end. A task that waits for real time, or that schedules itself again at once, blocks the clock"
        )
