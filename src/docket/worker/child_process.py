"""One child process, as its worker sees it (docs/design/processes.md)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

from docket.child.begun_mark import BegunMark, new_memory
from docket.child.memory import RSS_UNIT, peak_memory
from docket.child.messages import FrameReader, MessageKind, RunRequest, RunResult, frame
from docket.child.settings import ChildSettings
from docket.errors import ProcessLost
from docket.model.sizes import show_size

logger: logging.Logger = logging.getLogger("docket.worker")

# Between SIGTERM and SIGKILL.
TERMINATE_SECONDS = 2.0
# How long an idle child may take to end when its worker closes the pipe.
CLOSE_SECONDS = 1.0
# `end_with_parent` comes first, because the imports of docket may take seconds on a busy machine.
_PROGRAM = """import sys
sys.path[:] = {path!r}
from docket.child.limits import end_with_parent
end_with_parent({parent})
from docket.child.program import main
main({descriptor}, {memory})
"""

# Receives the messages that a child sends during a run.
Receive = Callable[[MessageKind, list[Any]], None]


class NeverBegan(ProcessLost):
    """The process ended before it began the run, so another child may run it."""


class ChildProcess:
    """A child. It has one pipe, which the event loop reads, and runs one task at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader()
        self._is_ready: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        # None if the process has ended before the run.
        self._result: asyncio.Future[RunResult | None] | None = None
        # The epoch of the present run.
        self._epoch = 0
        self._mark: BegunMark | None = None
        self._begun_epoch = 0
        self._receive: Receive | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._killing: asyncio.Task[None] | None = None
        self._status = 0
        self._inherited_peak = 0
        self._peak = 0
        self.pid: int = 0
        self.runs: int = 0
        # The function of its last run. Its modules are imported, and its `Shared` values open.
        self.last_function: str = ""

    @property
    def is_alive(self) -> bool:
        return not self._ended.done() and self._killing is None

    # The process

    async def start(self, settings: ChildSettings) -> None:
        """Starts the process, and returns when it is ready for a run. Raises NeverBegan if it ends
        before, OSError if the system cannot start it."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = self._spawn(theirs.fileno())
            except BaseException:
                ours.close()
                self._close_mark()
                raise
        self.pid = process.pid
        # `ru_maxrss` of the child begins with the peak of this process.
        self._inherited_peak = peak_memory()
        # A thread, because only `wait4` tells how much memory the process had, and it blocks.
        threading.Thread(target=self._wait, args=(process,), name=f"docket - child:{process.pid}", daemon=True).start()
        ours.setblocking(False)
        transport, _ = await self._loop.create_connection(lambda: _Pipe(self._received), sock=ours)
        self._transport = transport
        self._send(MessageKind.SETUP, pickle.dumps(settings, protocol=5))
        try:
            await asyncio.wait([self._is_ready, self._ended], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.kill()
            raise
        if not self._is_ready.done():
            raise self._lost("before it was ready", NeverBegan)

    def _spawn(self, descriptor: int) -> subprocess.Popen[bytes]:
        memory = new_memory()
        try:
            self._mark = BegunMark(memory)
            # Not `multiprocessing`: it would import the main program again, and start one process
            # more.
            program = _PROGRAM.format(path=sys.path, parent=os.getpid(), descriptor=descriptor, memory=memory)
            flags: list[str] = cast(Any, subprocess)._args_from_interpreter_flags()
            return subprocess.Popen(
                [sys.executable, *flags, "-c", program],
                stdin=subprocess.DEVNULL,
                pass_fds=[descriptor, memory],
                # Ctrl-C on a terminal goes to the whole group; the worker decides what it means.
                process_group=0,
            )
        finally:
            os.close(memory)

    def _begun(self) -> int:
        """The epoch of the last run that the process has begun. If it has changed during a run, the
        run has begun, whatever it is: the function may have written to a descriptor that is not its
        own."""
        return self._begun_epoch if self._mark is None else self._mark.epoch

    def _close_mark(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            self._begun_epoch = mark.epoch
            mark.close()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for the end of the process, so that no zombie stays behind."""
        try:
            if hasattr(os, "waitid"):
                # Without reaping it, so that its number stays that of its group.
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
                self._end_group(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
            peak = usage.ru_maxrss * RSS_UNIT
        except ChildProcessError:
            status, peak = 0, 0
        process.returncode = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._has_ended, process.returncode, peak)

    def _end_group(self, pid: int) -> None:
        """Ends the processes that the function has started, if the worker has ended the function.
        Those in a session of their own go on."""
        if self._killing is not None:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)

    def _has_ended(self, status: int, peak: int) -> None:
        self._status = status
        if peak > self._inherited_peak:
            self._peak = max(self._peak, peak)
        if self._transport is not None:
            self._transport.close()
        self._close_mark()
        self._ended.set_result(None)
        if self._result is not None and not self._result.done():
            self._result.set_result(None)

    def _lost(self, when: str, kind: type[ProcessLost] = ProcessLost) -> ProcessLost:
        number = -self._status if self._status < 0 else None
        how = f"was killed by {_signal_name(number)}" if number is not None else f"ended with exit code {self._status}"
        text = f"the child process {self.pid} {how} {when}; it had used up to {show_size(self._peak)}"
        return kind(text, number, None if number is not None else self._status, self._peak or None)

    # Messages

    def _send(self, kind: MessageKind, *fields: Any) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(kind, *fields))

    def _received(self, data: bytes) -> None:
        try:
            self._read(data)
        except Exception as error:
            # The function has written to a descriptor that is not its own.
            logger.error("the child process %d sent what is not a message (%r), and is ended", self.pid, error)
            self.kill()

    def _read(self, data: bytes) -> None:
        for kind, *fields in self._frames.feed(data):
            if kind == MessageKind.READY:
                self._peak = fields[0]
                if not self._is_ready.done():
                    self._is_ready.set_result(None)
            elif kind == MessageKind.LOG:
                if self._receive is not None:
                    self._receive(MessageKind.LOG, fields)
            elif fields.pop(0) == self._epoch:
                self._received_of_run(MessageKind(kind), fields)

    def _received_of_run(self, kind: MessageKind, fields: list[Any]) -> None:
        if kind is MessageKind.DONE:
            result = RunResult.of(*fields)
            self._peak = max(self._peak, result.peak_memory)
            if self._result is not None and not self._result.done():
                self._result.set_result(result)
        elif self._receive is not None:
            self._receive(kind, fields)

    # Runs

    async def run(self, request: RunRequest, receive: Receive) -> RunResult:
        """Runs a task. Raises ProcessLost if the process ends before the function does, NeverBegan
        if it ends before the function begins. If the caller is cancelled, the process ends first:
        the function does not go on."""
        self._result, self._receive = self._loop.create_future(), receive
        self._epoch = request.epoch
        before = self._begun()
        self.runs += 1
        self.last_function = request.function_name
        self._send(MessageKind.RUN, request.as_fields())
        try:
            if self._ended.done():
                self._result.set_result(None)
            result = await self._result
            if result is not None:
                return result
            if self._begun() == before:
                raise self._lost(f"before it ran {request.function_name}", NeverBegan)
            raise self._lost(f"while it ran {request.function_name}")
        except asyncio.CancelledError:
            self._receive = None
            await self.terminate()
            raise
        finally:
            self._result = self._receive = None
            self._epoch = 0

    async def terminate(self) -> None:
        """Ends the process: SIGTERM, and SIGKILL two seconds later. Returns when it has ended,
        however often the caller is cancelled meanwhile."""
        self.kill(after=TERMINATE_SECONDS)
        while not self._ended.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self._ended])

    def kill(self, after: float = 0.0) -> None:
        if self._killing is None and not self._ended.done():
            self._killing = self._loop.create_task(self._kill(after), name=f"docket - ending child:{self.pid}")

    async def _kill(self, after: float) -> None:
        if after:
            self._send(MessageKind.TERMINATE)
            self._signal(signal.SIGTERM)
            await asyncio.wait([self._ended], timeout=after)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def close(self) -> None:
        """Closes the pipe, so that an idle child ends, and kills the child if it does not."""
        if self.pid == 0:
            # It never started.
            return
        if self._transport is not None:
            self._transport.close()
        await asyncio.wait([self._ended], timeout=CLOSE_SECONDS)
        self._signal(signal.SIGKILL)
        if not self._ended.done():
            await asyncio.wait([self._ended])


class _Pipe(asyncio.Protocol):
    def __init__(self, received: Callable[[bytes], None]) -> None:
        self._received = received

    def data_received(self, data: bytes) -> None:
        self._received(data)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
