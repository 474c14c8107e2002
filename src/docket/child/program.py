"""The program of a child: waits for runs, and runs them one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from uncalled_for import get_dependency_parameters

from docket.dependencies.current import needs_docket
from docket.dependencies.process import holds_too_much
from docket.dependencies.resolution import SharedValues
from docket.docket import Docket

from .context import ChildWorker
from .forks import watch_forks
from .memory import memory_in_use, peak_memory
from .messages import MessageKind, RunRequest, RunResult
from .pipe import Pipe, PipeHandler, WorkerGone
from .rlimits import limit_memory
from .run import ChildRun, Terminated
from .settings import ChildSettings
from .shared_counters import SharedCounters
from .tickets import TicketReader

# How often the memory of the child is read, at most.
_MEASURE_SECONDS = 0.1
# Packages whose dependencies use the docket only if they say so. A dependency of another package
# may read it from the context.
_KNOWN = ("docket", "uncalled_for")


class Child:
    """Shared by the runs of this child: the docket, `Shared` values, the event loop."""

    def __init__(self, pipe: Pipe, counters: SharedCounters, tickets: TicketReader, settings: ChildSettings) -> None:
        self.pipe = pipe
        self._counters = counters
        self._tickets = tickets
        self._measured_at = 0.0
        self._memory_limit: int | None = None
        # Whether the last run has left the child with too much memory.
        self._is_worn_out = False
        self._run: ChildRun | None = None
        self.docket: Docket = settings.make_docket()
        self.worker: ChildWorker = ChildWorker(self.docket, settings.worker, settings.labels)
        self.shared: SharedValues = SharedValues()
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self._is_open = False
        # One object, so that it is known again.
        self._handler = self._terminate
        self._wants_docket: dict[Any, bool] = {}

    def serve(self) -> None:
        """Runs tasks until the worker closes the pipe."""
        self.pipe.send(MessageKind.READY, peak_memory())
        try:
            while True:
                kind, *fields = self.pipe.receive()
                if kind == MessageKind.TERMINATE:
                    # The function has ended in spite of the signal.
                    return
                if kind == MessageKind.RUN:
                    number, needs_ticket, request = fields
                    if not needs_ticket or self._may_begin(number):
                        self._serve_one(number, RunRequest.of(request))
        finally:
            self.loop.run_until_complete(self._close())

    def _may_begin(self, number: int) -> bool:
        """Whether a run that was sent ahead is still this child's. The worker takes it back from a
        child that is worn out."""
        if self._is_worn_out:
            return False
        is_ours = self._tickets.take(number)
        if not is_ours:
            self.pipe.send(MessageKind.SKIPPED, number)
        return is_ours

    def _serve_one(self, number: int, request: RunRequest) -> None:
        began = time.monotonic()
        self._counters.begin(number)
        self._run = run = ChildRun(self, number, request)
        if signal.getsignal(signal.SIGTERM) is not self._handler:
            # The function before has set a handler of its own.
            signal.signal(signal.SIGTERM, self._handler)
        result = run.run()
        # A timer that the function has left behind would hit the next run.
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._run = None
        now = time.monotonic()
        result.seconds = now - began
        self._measure(result, request.memory, now)
        self.pipe.send(MessageKind.DONE, number, result.as_fields())

    def _terminate(self, number: int, frame: object) -> None:
        """A SIGTERM that the worker has not announced for this run is not for this child: a service
        manager may send one to all processes, and the worker decides what it means."""
        run = self._run
        if run is not None and not self.pipe.is_of_copy and self._counters.ended == run.number:
            run.terminate(128 + number)

    def limit_memory(self, size: int | None) -> None:
        """Beyond this size, allocations fail with MemoryError. None removes the limit."""
        if size != self._memory_limit:
            self._memory_limit = size
            limit_memory(size)

    def _measure(self, result: RunResult, cap: int | None, now: float) -> None:
        """Reads how much memory the child holds. That takes longer than a short run, so it is not
        done after each of them, unless the function has a cap."""
        if cap is not None or now - self._measured_at > _MEASURE_SECONDS:
            self._measured_at = now
            result.memory, result.peak_memory = memory_in_use(), peak_memory()
            self._is_worn_out = holds_too_much(result.memory, cap)

    async def open_docket(self) -> None:
        """Connects to the server. Most functions never need it."""
        if not self._is_open:
            await self.docket.__aenter__()
            self._is_open = True

    async def _close(self) -> None:
        await self.shared.aclose()
        if self._is_open:
            await self.docket.__aexit__(None, None, None)

    def wants_docket(self, function: Callable[..., Any]) -> bool:
        """Whether the function, or one of its dependencies, may use the docket."""
        known = self._wants_docket.get(function)
        if known is None:
            known = self._wants_docket[function] = _wants_docket(function, set())
        return known


def _wants_docket(function: Callable[..., Any], seen: set[Any]) -> bool:
    for dependency in get_dependency_parameters(function).values():
        factory = getattr(dependency, "factory", None)
        if needs_docket(dependency) or type(dependency).__module__.partition(".")[0] not in _KNOWN:
            return True
        if callable(factory) and factory not in seen:
            seen.add(factory)
            if _wants_docket(factory, seen):
                return True
    return False


def main(descriptor: int, memory: int, ticket_descriptor: int) -> None:
    """Serves the worker at the other end of the pipe."""
    # A signal to the whole process group, as Ctrl-C is, or to all processes of a service, is the
    # worker's business: it decides what happens to the runs.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _not_for_us)
    # Programs that functions start must not have these.
    for inherited in (descriptor, ticket_descriptor):
        os.set_inheritable(inherited, False)
    pipe, tickets = Pipe(socket.socket(fileno=descriptor)), TicketReader(ticket_descriptor)
    counters = SharedCounters(memory)
    os.close(memory)
    watch_forks(pipe, tickets)
    with contextlib.suppress(WorkerGone, ConnectionError, Terminated):
        settings: ChildSettings = pickle.loads(pipe.receive()[1])
        sys.path[:] = settings.path
        _log_to(pipe, settings.levels)
        Child(pipe, counters, tickets, settings).serve()


def _not_for_us(number: int, frame: object) -> None:
    """Ignores a signal. Programs that the function starts do not inherit this handler, as they
    would inherit SIG_IGN."""


def _log_to(pipe: Pipe, levels: dict[str, int]) -> None:
    logging.getLogger().handlers[:] = [PipeHandler(pipe)]
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
