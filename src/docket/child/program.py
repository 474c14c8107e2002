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
from docket.dependencies.shared_values import SharedValues
from docket.docket import Docket

from .begun_mark import BegunMark
from .copies import watch_forks
from .memory import memory_in_use, peak_memory
from .messages import MessageKind, RunRequest, RunResult
from .pipe import Pipe, PipeHandler, WorkerGone
from .run import ChildRun, Terminated, not_for_us
from .settings import ChildSettings

# How often the memory of the child is read, at most.
_MEASURE_SECONDS = 0.1
# Packages whose dependencies use the docket only if they say so. A dependency of another package
# may read it from the context.
_KNOWN = ("docket", "uncalled_for")


class Child:
    """What the runs of this child share: the docket, `Shared` values, the event loop."""

    def __init__(self, pipe: Pipe, mark: BegunMark, settings: ChildSettings) -> None:
        self.pipe = pipe
        self._mark = mark
        self._measured_at = 0.0
        self.docket: Docket = settings.make_docket()
        self.shared: SharedValues = SharedValues()
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self._is_open = False
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
                    request = RunRequest.of(*fields)
                    self._mark.begin(request.epoch)
                    result = ChildRun(self, request).run()
                    self._measure(result, is_capped=request.memory is not None)
                    self.pipe.send(MessageKind.DONE, request.epoch, result.as_fields())
        finally:
            self.loop.run_until_complete(self._close())

    def _measure(self, result: RunResult, *, is_capped: bool) -> None:
        """Reads how much memory the child holds. That takes longer than a short run, so it is not
        done after each of them, unless the function has a cap."""
        now = time.monotonic()
        if is_capped or now - self._measured_at > _MEASURE_SECONDS:
            self._measured_at = now
            result.memory, result.peak_memory = memory_in_use(), peak_memory()

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


def main(descriptor: int, memory: int) -> None:
    """Serves the worker at the other end of the pipe."""
    # A signal to the whole process group, as Ctrl-C is, or to all processes of a service, is the
    # worker's business: it decides what happens to the runs.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, not_for_us)
    # Programs that functions start must not have it.
    os.set_inheritable(descriptor, False)
    pipe = Pipe(socket.socket(fileno=descriptor))
    mark = BegunMark(memory)
    os.close(memory)
    watch_forks(pipe)
    with contextlib.suppress(WorkerGone, ConnectionError, Terminated):
        settings: ChildSettings = pickle.loads(pipe.receive()[1])
        sys.path[:] = settings.path
        _log_to(pipe, settings.levels)
        Child(pipe, mark, settings).serve()


def _log_to(pipe: Pipe, levels: dict[str, int]) -> None:
    logging.getLogger().handlers[:] = [PipeHandler(pipe)]
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
