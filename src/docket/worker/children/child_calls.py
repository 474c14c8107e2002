"""One call of a function that declares `Process`: it waits for a child, or a child has it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from docket.child.messages import MessageKind, RunRequest, RunResult
from docket.dependencies import Process
from docket.errors import ProcessLost

if TYPE_CHECKING:
    from .child_process import ChildProcess

# Receives the messages that a child sends during a run.
Receive = Callable[[MessageKind, list[Any]], None]


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
