"""Calls of functions that declare `Process`, and the runs that were sent to one child: the present
one, and those sent ahead (docs/design/processes.md, "Runs sent ahead")."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from docket.child.messages import MessageKind, RunRequest, RunResult
from docket.child.shared_counters import SharedCounters
from docket.child.tickets import Tickets
from docket.dependencies import Process
from docket.errors import ProcessLost

from .child_channel import ChildChannel

if TYPE_CHECKING:
    from .child_process import ChildProcess

# Receives the messages that a child sends during a run.
Receive = Callable[[MessageKind, list[Any]], None]

# The bounds of the number of runs that a child has, the present one included. Between them, a child
# has as many as last for `BACKLOG_SECONDS`.
LEAST_RUNS, MOST_RUNS = 3, 16
BACKLOG_SECONDS = 0.02
# A run that lasts longer than this gets no others behind it.
SHORT_SECONDS = 0.1


class NeverBegan(ProcessLost):
    """The process ended before it began the run, so another child may run it."""


class NoChild(Exception):
    """The system could not start a child. The cause says why."""


class ChildCall:
    """A call, from the moment at which it wants a child to its result."""

    __slots__ = ("_begun", "_loop", "child", "function_name", "has_begun", "make_request", "number", "process",
                 "receive", "result", "time_limit")  # fmt: skip

    def __init__(
        self,
        function_name: str,
        process: Process,
        make_request: Callable[[], RunRequest],
        receive: Receive,
        time_limit: float = math.inf,
    ) -> None:
        """`time_limit` is the time-out of the run, in seconds."""
        self._loop = asyncio.get_running_loop()
        self.function_name: str = function_name
        self.process: Process = process
        self.make_request: Callable[[], RunRequest] = make_request
        self.receive: Receive = receive
        self.time_limit: float = time_limit
        self.result: asyncio.Future[RunResult] = self._loop.create_future()
        self._begun: asyncio.Future[None] | None = None
        self.has_begun: bool = False
        # The child to which it was sent, and its number there.
        self.child: ChildProcess | None = None
        self.number: int = 0

    async def until_begun(self) -> None:
        """Returns when a child has begun the call. Raises NoChild or NeverBegan if none will."""
        if not self.has_begun and not self.result.done():
            self._begun = self._loop.create_future()
            await self._begun
        if self.result.done():
            # It has failed, or has ended already.
            self.result.result()

    def begin(self) -> None:
        self.has_begun = True
        self._wake()

    def end(self, result: RunResult) -> None:
        if not self.result.done():
            self.result.set_result(result)

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)
        self._wake()

    def _wake(self) -> None:
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(None)


class ChildRuns:
    """Sends runs to a child, takes them back, and notes which of them it has begun and ended."""

    def __init__(
        self,
        channel: ChildChannel,
        tickets: Tickets,
        counters: SharedCounters,
        ended: Callable[[bool, list[ChildCall]], None],
    ) -> None:
        """`ended` is called after the end of each run: whether the child is worn out now, and the
        runs that were taken back from it therefore."""
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._tickets = tickets
        self._counters = counters
        self._ended = ended
        self._calls: deque[ChildCall] = deque()
        self._sent = 0
        self._present_number = 0
        # When the worker learned that the present run began, by the clock of the event loop.
        self.began_at: float = 0.0
        # What the child had noted before the present run.
        self._noted_before = 0
        # How long its runs last, as far as they are known. It falls slowly, and rises at once.
        self.usual_seconds: float = math.inf
        # How many runs it has begun.
        self.begun: int = 0
        # The most memory that the child has reported.
        self.peak_memory: int = 0
        # The function of its last run. Its modules are imported, and its `Shared` values open.
        self.last_function: str = ""

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def present(self) -> ChildCall | None:
        return self._calls[0] if self._calls else None

    def is_stuck(self, now: float) -> bool:
        """Whether runs wait behind a long one."""
        return len(self._calls) > 1 and now - self.began_at > SHORT_SECONDS

    def has_room(self, now: float) -> bool:
        """Whether a run may be sent ahead: not behind a long one, nor behind the last one of a
        child that is replaced then."""
        count = len(self._calls)
        if count >= LEAST_RUNS and (count >= MOST_RUNS or count * self.usual_seconds > BACKLOG_SECONDS):
            return False
        if now - self.began_at > SHORT_SECONDS:
            return False
        last = self._calls[-1]
        return not last.process.is_worn_out(self.begun + count - 1, 0)

    @property
    def enough_until(self) -> float:
        """When the child presumably comes to its last run, by the clock of the event loop. Until
        then it need not hear from the worker."""
        before_last = len(self._calls) - 1
        return self.began_at + before_last * self.usual_seconds if before_last > 0 else 0.0

    def send(self, call: ChildCall) -> None:
        fields = call.make_request().as_fields()
        self._sent += 1
        call.number = self._sent
        needs_ticket = bool(self._calls)
        if needs_ticket:
            self._tickets.issue(call.number)
        self._calls.append(call)
        self._channel.send(MessageKind.RUN, call.number, needs_ticket, fields)
        if not needs_ticket:
            self._begin(call)

    def _begin(self, call: ChildCall) -> None:
        self._noted_before, self._present_number = self._present_number, call.number
        self.began_at = self._loop.time()
        self.begun += 1
        self.last_function = call.function_name
        call.begin()

    def take_back(self) -> list[ChildCall]:
        """Takes back the runs behind the present one. If the child has begun one of them, that one
        is the present run now."""
        present, taken = self.present, self._take_tickets()
        if present is not None and present in taken:
            # Its predecessor has ended, but the child had not come to it yet. It stays where it is.
            taken.remove(present)
            self._sent += 1
            present.number = self._present_number = self._sent
            self._calls.appendleft(present)
            self._channel.send(MessageKind.RUN, present.number, False, present.make_request().as_fields())
        # The child writes the end of a run before it takes the ticket of the next one.
        self._channel.read()
        return taken

    def _take_tickets(self) -> list[ChildCall]:
        if not self._calls:
            return []
        numbers = self._tickets.take_back()
        taken = [call for call in self._calls if call.number in numbers]
        for call in taken:
            self._calls.remove(call)
        return taken

    def received(self, kind: MessageKind, number: int, fields: list[Any]) -> None:
        """A message about the present run. A thread of the function may outlive its run, so there
        may be messages about earlier ones."""
        call = self.present
        if call is None or call.number != number:
            return
        if kind is not MessageKind.DONE:
            call.receive(kind, fields)
            return
        result = RunResult.of(*fields)
        self._calls.popleft()
        call.end(result)
        self._note_duration(result.seconds)
        self.peak_memory = max(self.peak_memory, result.peak_memory)
        is_worn_out = call.process.is_worn_out(self.begun, result.memory)
        taken = self._take_tickets() if is_worn_out else []
        if self._calls:
            self._begin(self._calls[0])
        self._ended(is_worn_out, taken)

    def _note_duration(self, seconds: float) -> None:
        if seconds >= self.usual_seconds or math.isinf(self.usual_seconds):
            self.usual_seconds = seconds
        else:
            self.usual_seconds += (seconds - self.usual_seconds) / 8

    def has(self, call: ChildCall) -> bool:
        return call in self._calls

    def is_sent(self, number: int) -> bool:
        return any(call.number == number for call in self._calls)

    def leave(self) -> tuple[ChildCall | None, bool, list[ChildCall]]:
        """The child has died. Returns its present run, whether it had begun that, and the runs that
        it had not come to."""
        self._channel.read()
        taken = self._take_tickets()
        rest, self._calls = list(self._calls), deque()
        has_begun = self._counters.begun != self._noted_before
        return (rest[0] if rest else None), has_begun, [*rest[1:], *taken]
