"""Mistakes with threads and children."""

from __future__ import annotations

from typing import Any

from chaos.nemesis.workers import KillWorker
from docket.child.messages import RunResult
from docket.dependencies.timeout import Timeout
from docket.errors import ProcessLost
from docket.worker.children import child_process, children
from docket.worker.running import threads

from .base import BrokenBuild


class TimeoutWaitsForThread(BrokenBuild):
    """A time-out waits for the thread, and takes its result."""

    name = "time-out waits for the thread"
    work = ("overdue in a thread",)
    rate = 4.0
    seconds = 6.0

    def apply(self) -> None:
        async def run(self: Any, execution: Any, function: Any, args: Any, kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        setattr(Timeout, "run", run)  # noqa: B010


class AbandonedThreadsForgotten(BrokenBuild):
    """A thread that goes on after its time-out is not counted."""

    name = "abandoned threads forgotten"
    work = ("overdue in a thread",)
    rate = 4.0
    seconds = 8.0

    def apply(self) -> None:
        def give_up(self: Any, call: Any, reason: str) -> None:
            call.give_up(reason)

        setattr(threads.Threads, "_give_up", give_up)  # noqa: B010


class LostChildIsDone(BrokenBuild):
    """The end of a child is taken for the end of its run."""

    name = "lost child taken for done"
    work = ("crashing",)
    rate = 3.0
    seconds = 6.0

    def apply(self) -> None:
        finish: Any = vars(children.Children)["finish"]

        async def finish_somehow(self: Any, call: Any) -> Any:
            try:
                return await finish(self, call)
            except ProcessLost:
                return RunResult()

        setattr(children.Children, "finish", finish_somehow)  # noqa: B010


class ChildrenOutliveWorkers(BrokenBuild):
    """A child does not end with its worker."""

    name = "children outlive their worker"
    faults = (KillWorker(),)
    work = ("long in a child",)
    rate = 2.0
    seconds = 12.0
    gap_seconds = 2.0

    def apply(self) -> None:
        program: str = vars(child_process)["_PROGRAM"]
        call = "end_with_parent({parent})\n"
        assert call in program
        setattr(child_process, "_PROGRAM", program.replace(call, ""))  # noqa: B010
