"""The child processes of a worker. They are kept warm, and replaced when they are worn out."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from docket.child.messages import RunResult
from docket.child.settings import ChildSettings, settings_for

from .child_process import TERMINATE_SECONDS, ChildProcess
from .child_runs import ChildCall, NeverBegan, NoChild

if TYPE_CHECKING:
    from docket.worker.worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")

# A worker that could not start a child counts as unhealthy for this long, unless it starts one.
PROBLEM_SECONDS = 60.0

# The end of a run waits at most this long, and at most for this share of the run's time-out, which
# goes on meanwhile.
BATCH_SECONDS = 0.005
TIMEOUT_SHARE = 0.01
# Shorter than this is not worth a timer, which has this resolution anyway.
LEAST_SECONDS = 0.001


def available_processors() -> int:
    """The processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class Children:
    """At most `count` children, each with one run at a time, and more that were sent ahead. A child
    starts when a run needs it, and another one in its place as soon as it has ended, so that the
    next run finds it warm."""

    def __init__(self, worker: Worker, is_stopping: Callable[[], bool]) -> None:
        self.count: int = worker.cpu_processes
        self._docket = worker.docket
        self.name: str = worker.docket.name
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._is_stopping = is_stopping
        self._settings: ChildSettings | None = None
        # busy + idle + starting <= count
        self._busy: list[ChildProcess] = []
        self._idle: list[ChildProcess] = []
        self._starting: set[asyncio.Task[ChildProcess]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        # Why the system could not start the last child, and when.
        self._failure: str | None = None
        self._failed_at = 0.0
        # Calls that wait for a child.
        self._waiting: deque[ChildCall] = deque()
        self._end_batches = EndBatches()

    # Calls

    def begin(self, call: ChildCall) -> None:
        """Sends the call to a child, now or as soon as there is one for it."""
        self._waiting.append(call)
        self._dispatch()

    async def until_begun(self, call: ChildCall) -> None:
        """Returns when a child has begun the call. Raises as `finish` does."""
        try:
            await call.until_begun()
        except asyncio.CancelledError:
            await self.give_up(call)
            raise

    async def finish(self, call: ChildCall) -> RunResult:
        """Waits for the end of a call that was begun. Raises ProcessLost if the process ends before
        the function does, NeverBegan if it ends before the function begins, NoChild if none can be
        started. If the caller is cancelled, the function does not go on when this returns."""
        try:
            return await call.result
        except asyncio.CancelledError:
            await self.give_up(call)
            raise

    async def give_up(self, call: ChildCall) -> None:
        """Returns when the function does not go on, or will not begin."""
        call.result.cancel()
        child = call.child
        if child is None or not child.runs.has(call):
            # It waits for a child, or has ended.
            if call in self._waiting:
                self._waiting.remove(call)
            return
        # It must get no other run meanwhile.
        was_retiring, child.is_retiring = child.is_retiring, True
        self._wait_again(child.runs.take_back())
        if child.runs.present is call:
            child.kill(TERMINATE_SECONDS)
            self._dispatch()
            await child.until_ended()
            return
        child.is_retiring = was_retiring
        self._settle_down(child)
        self._dispatch()

    # What happens to children

    def run_ended(self, child: ChildProcess, is_worn_out: bool, taken: list[ChildCall]) -> None:
        child.is_retiring = child.is_retiring or is_worn_out
        if taken:
            self._wait_again(taken)
        if not len(child.runs):
            self._settle_down(child)
        self._dispatch()

    def has_read(self, child: ChildProcess) -> None:
        self._end_batches.has_read(child)

    def child_ended(self, child: ChildProcess, taken: list[ChildCall]) -> None:
        self._wait_again(taken)
        if child in self._idle:
            self._idle.remove(child)
        if child in self._busy:
            self._busy.remove(child)
            self._replace()
        self._dispatch()

    def _settle_down(self, child: ChildProcess) -> None:
        """A child without a run is idle, or is replaced."""
        if len(child.runs) or child not in self._busy or not child.is_alive:
            return
        self._busy.remove(child)
        if child.is_retiring:
            self._close(child)
            self._replace()
        else:
            self._idle.append(child)

    # Which child gets which call

    def _wait_again(self, taken: Iterable[ChildCall]) -> None:
        """Calls that were taken back come first."""
        for call in reversed(list(taken)):
            call.child = None
            if not call.result.done():
                self._waiting.appendleft(call)

    def _dispatch(self) -> None:
        """Gives the calls that wait to children, and starts children for those that remain."""
        if self._idle or len(self._busy) > 1:
            self._take_back()
        while self._waiting:
            child = self._child_for(self._waiting[0])
            if child is None:
                break
            if not len(child.runs):
                self._idle.remove(child)
                self._busy.append(child)
            child.send(self._waiting.popleft())
        if self._room:
            behind = sum(len(child.runs) - 1 for child in self._busy)
            for _ in range(min(self._room, len(self._waiting) + behind - len(self._starting))):
                self._start()

    def _take_back(self) -> None:
        """Takes calls back from children that have not begun them, if another child can: one that
        has nothing to do, or one whose runs are short while theirs is long."""
        if len(self._idle) > len(self._waiting):
            crowded = min((child for child in self._busy if len(child.runs) > 1), key=_began_at, default=None)
            if crowded is not None:
                self._wait_again(crowded.runs.take_back())
            return
        now = self._loop.time()
        stuck = [child for child in self._busy if child.runs.is_stuck(now)]
        if stuck and any(_has_room(child, now) for child in self._busy):
            for child in stuck:
                self._wait_again(child.runs.take_back())

    def _child_for(self, call: ChildCall) -> ChildProcess | None:
        """An idle child, if possible one that has run the function before. If all are busy, the one
        with the fewest runs."""
        name = call.function_name
        if self._idle:
            familiar = next((child for child in reversed(self._idle) if child.runs.last_function == name), None)
            return familiar or self._idle[-1]
        if self._room:
            return None
        now, found, fewest = self._loop.time(), None, (math.inf, False)
        for child in self._busy:
            rank = len(child.runs), child.runs.last_function != name
            if rank < fewest and _has_room(child, now):
                found, fewest = child, rank
        return found

    # Starts and ends

    @property
    def _room(self) -> int:
        """How many more children may start."""
        return self.count - len(self._busy) - len(self._idle) - len(self._starting)

    def _replace(self) -> None:
        if self._room and not self._is_stopping():
            self._start()

    def _start(self) -> None:
        starting = asyncio.get_running_loop().create_task(
            self._start_one(), name=f"{self._docket.name} - starting a child"
        )
        self._starting.add(starting)
        starting.add_done_callback(self._has_started)

    async def _start_one(self) -> ChildProcess:
        if self._settings is None:
            self._settings = settings_for(self._docket, self._worker.name, self._worker.labels())
        child = ChildProcess(self)
        try:
            await child.start(self._settings)
        except BaseException:
            self._close(child)
            raise
        return child

    def _has_started(self, starting: asyncio.Task[ChildProcess]) -> None:
        self._starting.discard(starting)
        if starting.cancelled():
            return
        error = starting.exception()
        if error is None:
            self._failure = None
            child = starting.result()
            if child.is_alive:
                self._idle.append(child)
            self._dispatch()
            return
        if isinstance(error, OSError):
            self._failure, self._failed_at = str(error), time.monotonic()
        if not self._waiting:
            logger.warning("a child process could not be started: %s", error)
            return
        # The call that has waited longest learns of it, and decides what happens to its task.
        failure = error if isinstance(error, NeverBegan) else NoChild(str(error))
        failure.__cause__ = error if failure is not error else None
        self._waiting.popleft().fail(failure)
        self._dispatch()

    def _close(self, child: ChildProcess) -> None:
        closing = asyncio.get_running_loop().create_task(
            child.close(), name=f"{self._docket.name} - ending child:{child.pid}"
        )
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Ends all children. No run is left by now."""
        starting = list(self._starting)
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        children, self._idle, self._busy = [*self._idle, *self._busy], [], []
        for child in children:
            self._close(child)
        while self._closing:
            await asyncio.wait(self._closing)

    @property
    def busy(self) -> int:
        """How many children have a run."""
        return len(self._busy)

    @property
    def problem(self) -> str | None:
        """Why no child could be started lately."""
        failure = self._failure
        return failure if failure is not None and time.monotonic() - self._failed_at < PROBLEM_SECONDS else None


def _has_room(child: ChildProcess, now: float) -> bool:
    return child.is_alive and not child.is_retiring and child.runs.has_room(now)


def _began_at(child: ChildProcess) -> float:
    return child.runs.began_at


class EndBatches:
    """Lets the ends of short runs wait in the pipes of the children, so that the worker wakes up
    once for several of them (docs/design/processes.md, "Several ends at a time").

    It reads the pipes of all children that have enough to do at the same time, every few
    milliseconds. The event loop reads those of all others at once.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # When each of them was read.
        self._children: dict[ChildProcess, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def has_read(self, child: ChildProcess) -> None:
        """The event loop has read what the child has sent."""
        now = self._loop.time()
        if child.runs.enough_until - now >= LEAST_SECONDS and _may_wait(child):
            child.pause_reading()
            self._wait(child, now)

    def _wait(self, child: ChildProcess, now: float) -> None:
        """The next runs may be on their way, because those that have ended have made room."""
        self._children[child] = now
        self._look_at(max(self._until(child), now + LEAST_SECONDS))

    def _until(self, child: ChildProcess) -> float:
        """By then the child has come to its last run, or its first end has waited long enough."""
        return min(child.runs.enough_until, self._children[child] + _longest_wait(child))

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """Reads all, unless each of them has got more to do meanwhile."""
        self._timer = None
        now, until = self._loop.time(), min(map(self._until, self._children))
        if until - now >= LEAST_SECONDS:
            self._look_at(until)
            return
        children, self._children = list(self._children), {}
        have_sent = [child.read() for child in children]
        for child, has_sent in zip(children, have_sent, strict=True):
            # If no run has ended by now, the present one may last for long.
            if has_sent and _may_wait(child):
                self._wait(child, now)
            else:
                child.resume_reading()


def _may_wait(child: ChildProcess) -> bool:
    """The pipe has not much room, so the rest of a large message is read as it comes."""
    runs = child.runs
    if not child.is_alive or child.is_amid_message or not len(runs):
        return False
    return runs.usual_seconds <= BATCH_SECONDS and _longest_wait(child) >= LEAST_SECONDS


def _longest_wait(child: ChildProcess) -> float:
    present = child.runs.present
    return BATCH_SECONDS if present is None else min(BATCH_SECONDS, present.time_limit * TIMEOUT_SHARE)
