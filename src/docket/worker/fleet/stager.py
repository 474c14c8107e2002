"""Stages tasks: moves them from the schedule to the stream when they fall due."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import os
import sys
from collections.abc import Callable
from typing import Any

from docket.errors import DocketError
from docket.ledger import Duty, Ledger
from docket.storage.subscriptions import Subscriptions
from docket.worker.lease.lease import arrival_clock, steady_seconds
from docket.worker.service import Service

from .duties import Duties

# A safety net in case a message about an earlier due time is
# lost. A gap in the subscription wakes the stager at once.
LONGEST_SLEEP = 30.0
# A deputy checks this long after a task should have been staged.
DEPUTY_SECONDS = 0.5
RESIGN_SECONDS = 1.0
# Longer waits are left to the event loop until there is this much left.
EXACT_SECONDS = 0.5
# A safety net: the event loop ends an exact wait this much later.
LATE_SECONDS = 0.01
# A request may be quicker than all requests before by this much. If it arrives before the due time,
# the stager has to ask once more.
QUICKER_MS = 0.06


class Stager(Service):
    """Sleeps until the next task is due. A task with an earlier due time wakes it.

    The leader stages for the whole fleet, at the due time. Its deputy checks half a second later,
    with one plain command, and takes over if the task is still in the schedule. The stagers of all
    other workers sleep until they get a duty or a renewal reports an overdue task.
    """

    # pydocket gives its asyncio task this name.
    name = "scheduler"

    def __init__(
        self,
        ledger: Ledger,
        subscriptions: Subscriptions,
        duties: Duties,
        now_ms: Callable[[], float],
        labels: dict[str, str],
        most_pause: float,
    ) -> None:
        super().__init__(labels, most_pause)
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._duties = duties
        self._now_ms = now_ms
        self._wake = asyncio.Event()
        self._next_ms = math.inf
        self._listens = self._is_overdue_reported = False
        # The next due time may have changed without a message: ask the server.
        self._must_recheck = True
        self._timer = ExactTimer(self._wake.set)
        self._arrival = arrival_clock()

    async def open(self) -> None:
        self._duties.on_change(self._recheck)
        self._subscriptions.on_gap(self, self._recheck)
        self._timer.open()

    async def close(self) -> None:
        self._timer.close()
        self._subscriptions.forget_gap(self)
        self._unlisten()

    async def run(self) -> None:
        """Runs until cancelled. Then the worker resigns, so that another worker gets the duty
        before this one has drained."""
        try:
            await super().run()
        finally:
            await self._resign()

    def wake(self) -> None:
        """A renewal has found an overdue task, so the leader and the deputy are late."""
        self._is_overdue_reported = True
        self._recheck()

    async def step(self) -> None:
        self._wake.clear()
        is_overdue, self._is_overdue_reported = self._is_overdue_reported, False
        duty = self._duties.duty
        if duty is Duty.NONE and not is_overdue:
            self._unlisten()
            self.clear_problem()
            await self._wake.wait()
            return
        await self._listen()
        must_recheck, self._must_recheck = self._must_recheck, False
        # Forget the old due time, so that `_on_message` keeps a due time that arrives before the
        # server's answer: the answer may be older than the message.
        self._next_ms = math.inf
        try:
            if duty is Duty.DEPUTY and not is_overdue and not must_recheck and not await self._leader_is_late():
                await self._sleep(DEPUTY_SECONDS, steady_seconds(), self._now_ms())
            elif must_recheck and not is_overdue and duty is Duty.LEADER and await self._nothing_waits():
                await self._sleep(0.0, steady_seconds(), self._now_ms())
            else:
                await self._stage(is_overdue)
        except BaseException:
            self._must_recheck = True
            raise

    async def _stage(self, is_overdue: bool) -> None:
        sent = steady_seconds()
        staged = await self._ledger.tasks.stage(worker=self._duties.worker, summoned=is_overdue)
        read = steady_seconds()
        self._arrival.note(staged.now_ms, read - sent)
        self.clear_problem()
        if staged.duty is not self._duties.duty:
            self._duties.assign(staged.duty)
            self._must_recheck = False
        if staged.duty is Duty.NONE:
            return
        self._note_due(staged.next_ms)
        if staged.duty is Duty.LEADER:
            await self._sleep(0.0, read, self._arrival.now_ms() - QUICKER_MS)
        else:
            # If tasks are still overdue, the leader is already staging them.
            await self._sleep(DEPUTY_SECONDS, read, staged.now_ms, least=DEPUTY_SECONDS)

    async def _nothing_waits(self) -> bool:
        """Whether the schedule is empty. One plain command tells a leader that has just begun, and
        that would otherwise load a large script."""
        self._note_due(await self._ledger.tasks.next_due_ms())
        self.clear_problem()
        return self._next_ms == math.inf

    async def _leader_is_late(self) -> bool:
        self._note_due(await self._ledger.tasks.next_due_ms())
        self.clear_problem()
        return self._now_ms() - self._next_ms >= DEPUTY_SECONDS * 1000

    async def _sleep(self, longer: float, read: float, server_ms: float, *, least: float = 0.0) -> None:
        """Sleeps until `longer` seconds after the next known due time, or until a recheck is
        requested. The server's clock showed `server_ms` at the steady time `read`."""
        while not self._must_recheck:
            now = steady_seconds()
            until_due = (self._next_ms - server_ms) / 1000 + longer
            left = min(max(until_due, least), LONGEST_SLEEP) - (now - read)
            if left <= 0:
                return
            if longer:
                await self._wait(left)
            elif left > 2 * EXACT_SECONDS:
                await self._wait(left - EXACT_SECONDS)
            else:
                await self._wait_exactly(left)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
                self._wake.clear()

    async def _wait_exactly(self, seconds: float) -> None:
        is_set = self._timer.set(seconds)
        try:
            await self._wait(seconds + LATE_SECONDS if is_set else seconds)
        finally:
            self._timer.stop()

    async def _listen(self) -> None:
        if not self._listens:
            await self._subscriptions.listen(self._ledger.keys.wake_channel, self._on_message)
            self._listens = True

    def _unlisten(self) -> None:
        if self._listens:
            self._listens = False
            self._subscriptions.unlisten(self._ledger.keys.wake_channel, self._on_message)

    def _on_message(self, message: bytes) -> None:
        """The message is a due time that is earlier than all
        others, or 0 if a worker with a duty has left."""
        try:
            due_ms = float(message)
        except ValueError:
            # Anybody may publish anything.
            return
        if due_ms <= 0:
            self._recheck()
        elif due_ms < self._next_ms:
            self._note_due(due_ms)
            self._wake.set()

    def _note_due(self, due_ms: float | None) -> None:
        self._next_ms = min(self._next_ms, math.inf if due_ms is None else due_ms)

    def _recheck(self) -> None:
        self._must_recheck = True
        self._wake.set()

    async def _resign(self) -> None:
        with contextlib.suppress(TimeoutError, DocketError):
            async with asyncio.timeout(RESIGN_SECONDS):
                await self._duties.resign()


_CLOCK_MONOTONIC = 1
_BILLION = 1_000_000_000
# The file descriptor of a timer can be read after it has rung: eight bytes, how many times.
_COUNT_BYTES = 8


class _Setting(ctypes.Structure):
    """`struct itimerspec` of a 64-bit Linux: how often, and when for the first time."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_seconds", "every_ns", "seconds", "ns")]


class ExactTimer:
    """A timer that is exact to a tenth of a millisecond. The event loop rounds a wait up to whole
    milliseconds, because `epoll` does.

    Calls `ring` in the event loop. Linux has timers with a file descriptor, and the event loop
    watches it as it watches sockets. On other systems, and if there is no file descriptor left,
    `set` does nothing and says so."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._file: int | None = None
        self._library: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
            return
        with contextlib.suppress(OSError, AttributeError):
            self._library = ctypes.CDLL(None)
            file: int = self._library.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
            if file >= 0:
                self._watch(file)

    def _watch(self, file: int) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self._loop.add_reader(file, self._has_rung)
        except (NotImplementedError, RuntimeError):
            # An event loop that cannot watch files.
            os.close(file)
        else:
            self._file = file

    def set(self, seconds: float) -> bool:
        """Rings after this time, instead of at the time that was set before. False if there is no
        such timer."""
        if self._file is None:
            return False
        # Zero would stop the timer.
        whole, ns = divmod(max(int(seconds * _BILLION), 1), _BILLION)
        setting = _Setting(0, 0, whole, ns)
        return self._library.timerfd_settime(self._file, 0, ctypes.byref(setting), None) == 0

    def stop(self) -> None:
        if self._file is not None:
            self._library.timerfd_settime(self._file, 0, ctypes.byref(_Setting()), None)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None and self._loop is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(file)
            os.close(file)

    def __del__(self) -> None:
        """The event loop was closed under the worker."""
        if self._file is not None:
            os.close(self._file)

    def _has_rung(self) -> None:
        # It may have been set again or stopped in the meantime, and then has nothing to read.
        with contextlib.suppress(BlockingIOError):
            if self._file is not None and os.read(self._file, _COUNT_BYTES):
                self._ring()
