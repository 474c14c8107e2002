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
from typing import Any, Protocol, cast

from docket.child.memory import RSS_UNIT, peak_memory
from docket.child.messages import MessageKind
from docket.child.settings import ChildSettings
from docket.child.shared_counters import SharedCounters, new_memory
from docket.child.tickets import Tickets
from docket.errors import ProcessLost
from docket.model.amounts import show_size

from .child_channel import ChildChannel
from .child_runs import ChildCall, ChildRuns, NeverBegan

logger: logging.Logger = logging.getLogger("docket.worker")

# Between SIGTERM and SIGKILL.
TERMINATE_SECONDS = 2.0
# How long an idle child may take to end when its worker closes the pipe.
CLOSE_SECONDS = 1.0
# `end_with_parent` comes first, because the imports of docket may take seconds on a busy machine.
_PROGRAM = """import sys
sys.path[:] = {path!r}
from docket.child.rlimits import end_with_parent
end_with_parent({parent})
from docket.child.program import main
main({descriptor}, {memory}, {tickets})
"""


class Pool(Protocol):
    """Callbacks of a child process."""

    name: str
    """The name of the docket, with which the names of asyncio tasks begin."""

    def run_ended(self, child: ChildProcess, is_worn_out: bool, taken: list[ChildCall]) -> None:
        """A run has ended. If the child is worn out, runs were taken back from it."""

    def has_read(self, child: ChildProcess) -> None:
        """The event loop has read what the child has sent."""

    def child_ended(self, child: ChildProcess, taken: list[ChildCall]) -> None:
        """The process has ended, and had not come to these runs."""


class ChildProcess:
    """A child: its process, the pipe to it, and its runs."""

    # Since it was started.
    runs: ChildRuns

    def __init__(self, pool: Pool) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = pool
        self._is_ready: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._has_exited = False
        self._channel: ChildChannel | None = None
        self._tickets: Tickets | None = None
        self._counters: SharedCounters | None = None
        self._killing: asyncio.Task[None] | None = None
        self._status = 0
        self._inherited_peak = 0
        self._peak = 0
        self.pid: int = 0
        # Whether it gets no more runs. It ends after the one that it has.
        self.is_retiring: bool = False

    @property
    def is_alive(self) -> bool:
        return not self._has_exited and self._killing is None

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
                self._close_descriptors()
                raise
        self.pid = process.pid
        # `ru_maxrss` of the child begins with the peak of this process.
        self._inherited_peak = peak_memory()
        self._channel = ChildChannel(ours, self._received, self._broken, self._has_read)
        assert self._tickets is not None
        assert self._counters is not None
        self.runs = ChildRuns(self._channel, self._tickets, self._counters, self._run_ended)
        # A thread, because only `wait4` tells how much memory the process had, and it blocks.
        threading.Thread(target=self._wait, args=(process,), name=f"docket - child:{process.pid}", daemon=True).start()
        self._channel.send(MessageKind.SETUP, pickle.dumps(settings, protocol=5))
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
            self._counters, self._tickets = SharedCounters(memory), Tickets()
            # Not `multiprocessing`: it would import the main program again, and start one process
            # more.
            program = _PROGRAM.format(
                path=sys.path,
                parent=os.getpid(),
                descriptor=descriptor,
                memory=memory,
                tickets=self._tickets.reading,
            )
            flags: list[str] = cast(Any, subprocess)._args_from_interpreter_flags()
            return subprocess.Popen(
                [sys.executable, *flags, "-c", program],
                stdin=subprocess.DEVNULL,
                pass_fds=[descriptor, memory, self._tickets.reading],
                # Ctrl-C on a terminal goes to the whole group; the worker decides what it means.
                process_group=0,
            )
        finally:
            os.close(memory)

    def _close_descriptors(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._tickets is not None:
            self._tickets.close()
        if self._counters is not None:
            self._counters.close()

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
        self._status, self._has_exited = status, True
        if peak > self._inherited_peak:
            self._peak = max(self._peak, peak)
        # First what the process had still written: a run whose end is on the way is not lost.
        present, has_begun, others = self.runs.leave()
        if present is not None:
            present.fail(
                self._lost(f"while it ran {present.function_name}")
                if has_begun
                else self._lost(f"before it ran {present.function_name}", NeverBegan)
            )
        self._close_descriptors()
        self._ended.set_result(None)
        self._pool.child_ended(self, others)

    def _lost(self, when: str, kind: type[ProcessLost] = ProcessLost) -> ProcessLost:
        number = -self._status if self._status < 0 else None
        how = f"was killed by {_signal_name(number)}" if number is not None else f"ended with exit code {self._status}"
        peak = max(self._peak, self.runs.peak_memory)
        text = f"the child process {self.pid} {how} {when}; it had used up to {show_size(peak)}"
        return kind(text, number, None if number is not None else self._status, peak or None)

    # Messages

    def _received(self, message: list[Any]) -> None:
        kind, *fields = message
        if kind == MessageKind.READY:
            self._peak = fields[0]
            if not self._is_ready.done():
                self._is_ready.set_result(None)
        elif kind == MessageKind.LOG:
            present = self.runs.present
            if present is not None:
                present.receive(MessageKind.LOG, fields)
        elif kind == MessageKind.SKIPPED:
            if self.runs.is_sent(fields[0]):
                raise ValueError("a run that nobody has taken back")
        else:
            number = fields.pop(0)
            self.runs.received(MessageKind(kind), number, fields)

    def _has_read(self) -> None:
        self._pool.has_read(self)

    @property
    def is_amid_message(self) -> bool:
        """Whether a part of a message has arrived."""
        return self._channel is not None and self._channel.is_amid_message

    def pause_reading(self) -> None:
        if self._channel is not None:
            self._channel.pause()

    def resume_reading(self) -> None:
        if self._channel is not None:
            self._channel.resume()

    def read(self) -> bool:
        """Passes on what has arrived. False if that is nothing."""
        return self._channel is not None and self._channel.read()

    def _broken(self, error: Exception) -> None:
        """The function has used a descriptor that is not its own."""
        logger.error("the child process %d sent what is not a message (%r), and is ended", self.pid, error)
        self.kill()

    # Runs

    def send(self, call: ChildCall) -> None:
        """Sends a run. It begins when those before it have ended."""
        call.child = self
        self.runs.send(call)

    def _run_ended(self, is_worn_out: bool, taken: list[ChildCall]) -> None:
        self._pool.run_ended(self, is_worn_out, taken)

    async def until_ended(self) -> None:
        """Returns when the process has ended, however often the caller is cancelled meanwhile."""
        while not self._ended.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self._ended])

    def kill(self, after: float = 0.0) -> None:
        """Ends the process at once, or with SIGTERM and so many seconds later with SIGKILL."""
        if not self.is_alive:
            return
        if after:
            present = self.runs.present
            if present is not None and self._counters is not None:
                self._counters.end(present.number)
            if self._channel is not None:
                self._channel.send(MessageKind.TERMINATE)
                self._channel.flush()
        self._killing = self._loop.create_task(self._kill(after), name=f"{self._pool.name} - ending child:{self.pid}")
        self._signal(signal.SIGTERM if after else signal.SIGKILL)

    async def _kill(self, after: float) -> None:
        await asyncio.wait([self._ended], timeout=after)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if not self._has_exited:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def close(self) -> None:
        """Closes the pipe, so that an idle child ends, and kills the child if it does not."""
        if self.pid == 0:
            # It never started.
            return
        if self._channel is not None:
            self._channel.close()
        await asyncio.wait([self._ended], timeout=CLOSE_SECONDS)
        self._signal(signal.SIGKILL)
        if not self._ended.done():
            await asyncio.wait([self._ended])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
