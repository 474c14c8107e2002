"""A clock to hold in the hand: days of retries, delays and cron jobs pass in milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Self

from docket.docket import Docket
from docket.ledger.queries import Query, TaskRow, find
from docket.model.states import ExecutionState
from docket.model.times import to_ms
from docket.storage.urls import Kind
from docket.worker import Worker

_POLL_SECONDS = 0.001
_MOST_SKIPS = 10_000


class Clock:
    """Holds the time of all dockets of this process on one `memory://` name, until it is closed.

    The time stands still unless the test moves it. Everything that falls due on the way runs
    in its order and at its time, through the same scripts as in production, if a worker is
    there: the one that was given, or one that runs already. `Timeout`s, `asyncio.sleep` and
    what the code under test asks of `datetime.now()` go by real time; ask `clock.now()`, or
    `docket.now()`, instead. A worker's `run_until_finished` and `run_at_most` do not wait
    for future work either: the clock skips to it. Raises ValueError for a docket that is not
    on `memory://`, RuntimeError if another clock holds that time.
    """

    def __init__(
        self,
        docket: Docket,
        worker: Worker | None = None,
        *,
        at: datetime | None = None,
        patience: timedelta = timedelta(seconds=10),
    ) -> None:
        if docket.server.address.kind is not Kind.MEMORY:
            raise ValueError(f"a Clock needs a docket on memory://, not {docket.server.shown_url}")
        self._docket = docket
        self._worker = worker
        self._patience = patience
        self._clock = docket.server.clock
        self._skips = 0
        if self._clock.is_held:
            raise RuntimeError(f"another Clock holds the time of {docket.server.shown_url}; close it first")
        self._hold(to_ms(at) if at is not None else self._clock.now_ms())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """The dockets go by real time again."""
        self._clock.release()

    def now(self) -> datetime:
        return self._clock.now()

    def set(self, when: datetime) -> None:
        """Sets the time, forwards or back, without
        running anything: for the beginning of a test."""
        self._hold(to_ms(when))

    async def advance(self, by: timedelta = timedelta(0)) -> None:
        """Lets so much time pass, and runs what falls due meanwhile. Raises as `travel_to`."""
        await self.travel_to(self.now() + by)

    async def travel_to(self, when: datetime) -> None:
        """Lets time pass until then, and runs what falls due meanwhile.

        Raises ValueError for a time that has passed, TimeoutError
        if tasks do not come to an end within `patience`.
        """
        target = math.ceil(to_ms(when))
        if target < self._clock.now_ms():
            raise ValueError(f"{when} has passed on this clock, which shows {self.now()}; to turn it back, use set()")
        async with self._at_work() as is_somebody_there:
            while True:
                due = await self._work_off() if is_somebody_there else None
                if due is None or due > target:
                    break
                self._hold(due)
            self._hold(target)
            await self._stage()

    def _hold(self, ms: float) -> None:
        self._clock.hold(math.ceil(ms), self._skip)

    @contextlib.asynccontextmanager
    async def _at_work(self) -> AsyncGenerator[bool]:
        """Sees to it that the given worker works; says whether anybody does."""
        worker = self._worker
        if worker is None or worker.is_working:
            yield worker is not None or bool(await self._docket.workers())
            return
        working = asyncio.create_task(worker.run_forever(), name=f"{self._docket.name} - worker of the clock")
        try:
            while not worker.is_working and not working.done():  # noqa: ASYNC110 - it has no event for this
                await asyncio.sleep(_POLL_SECONDS)
            yield True
        except BaseException:
            # What runs now may never end: stopped twice, the worker hands it back.
            worker.stop()
            raise
        finally:
            worker.stop()
            await working

    async def _work_off(self) -> float | None:
        """Waits until everything that is due has ended; returns when the next task is due."""
        deadline = time.monotonic() + self._patience.total_seconds()
        while True:
            await self._stage()
            busy, due = await self._docket.ledger.next_due()
            if not busy and (due is None or due > self._clock.now_ms()):
                return due
            if time.monotonic() > deadline:
                raise TimeoutError(await self._complaint())
            await asyncio.sleep(_POLL_SECONDS)

    async def _stage(self) -> None:
        while True:
            moved, _, due, _ = await self._docket.ledger.stage()
            if not moved or due is None or due > self._clock.now_ms():
                return

    async def _skip(self) -> bool:
        """Moves on to the next due time, for a worker that runs until everything is finished."""
        busy, due = await self._docket.ledger.next_due()
        if busy:
            await asyncio.sleep(_POLL_SECONDS)
            return True
        if due is None:
            self._skips = 0
            return False
        self._skips += 1
        if self._skips > _MOST_SKIPS:
            raise RuntimeError(
                f"the clock has skipped to future work {_MOST_SKIPS:,} times, and there is more: a task that schedules "
                "itself again never finishes; use worker.run_at_most, or clock.advance"
            )
        self._hold(max(due, self._clock.now_ms()))
        await self._stage()
        return True

    async def _complaint(self) -> str:
        rows: list[TaskRow] = []
        for state in (ExecutionState.RUNNING, ExecutionState.QUEUED):
            rows += (await find(self._docket.ledger, Query(state=state))).rows
        shown = ", ".join(f"{row.task.function_name} {row.key!r} ({row.state.value})" for row in rows[:10])
        return (
            f"after {self._patience.total_seconds():g} s the clock still cannot leave {self.now()}: {shown or 'tasks'} "
            "did not end. A task that waits for real time, or schedules itself again at once, holds it up"
        )
