"""A limit on the duration of a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from docket.execution import Execution
from docket.execution.context import WorkerContext
from docket.execution.execution import TaskFunction
from docket.model.times import check_durations, format_duration

from .base import Runtime

if TYPE_CHECKING:
    from typing import Self


# The message of the CancelledError that the body gets.
# It distinguishes this cancellation from all others.
CANCEL_MESSAGE = "docket: the Timeout expired"


class Timeout(Runtime[Any]):
    """Ends a run with TimeoutError after `base`,
    unless the run asks for more time with `extend`."""

    def __init__(self, base: timedelta) -> None:
        check_durations("Timeout", base=base)
        if base <= timedelta(0):
            raise ValueError(f"Timeout({base}): it must be positive")
        self.base = base
        self._granted = base
        self._due: float | None = None
        self._expired = False
        self._alarm: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        # Set while the run lasts. A plain function uses its Timeout in another thread.
        self._loop: asyncio.AbstractEventLoop | None = None
        # Set in a child.
        self._relay: Callable[[timedelta], None] | None = None

    def provide(self, execution: Execution, worker: WorkerContext) -> Self:
        """A copy for this run, which may be extended."""
        return type(self)(self.base)

    async def __aenter__(self) -> Self:
        return type(self)(self.base)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the state of this run, so that a
        task can pass its own Timeout to another task."""
        unset = dict.fromkeys(("_due", "_alarm", "_task", "_loop", "_relay"))
        return {**vars(self), **unset, "_granted": self.base, "_expired": False}

    def remaining(self) -> timedelta:
        """The time that is left."""
        if self._due is None:
            return self.base
        now = time.monotonic() if self._loop is None else self._loop.time()
        return timedelta(seconds=self._due - now)

    def expired(self) -> bool:
        """Whether the time has run out."""
        return self._expired or self.remaining() <= timedelta(0)

    def extend(self, by: timedelta | None = None) -> None:
        """Gives the run more time: `by`, or `base` once more."""
        if self._due is not None and not self._expired:
            more = self.base if by is None else by
            self._granted += more
            self._due += more.total_seconds()
            if self._relay is not None:
                self._relay(more)
            elif self._loop is None or _is_current(self._loop):
                self._set_alarm()
            else:
                self._loop.call_soon_threadsafe(self._set_alarm)

    def follow(self, due: float, relay: Callable[[timedelta], None]) -> None:
        """In a child: the worker runs the clock, until `due` by the monotonic clock, and learns of
        every extension."""
        self._due, self._relay = due, relay

    async def run(
        self, execution: Execution, function: TaskFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        task = self._task = asyncio.current_task()
        assert task is not None
        cancels = task.cancelling()
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + self.base.total_seconds()
        self._set_alarm()
        try:
            result = await function(*args, **kwargs)
        except asyncio.CancelledError as error:
            # A cancellation from outside takes precedence over the timeout's own.
            if not self._expired or task.uncancel() > cancels:
                raise
            raise self._too_long(execution) from error
        except BaseException:
            if self._expired:
                task.uncancel()
            raise
        finally:
            self._silence()
            self._task = None
        if self._expired and task.uncancel() <= cancels:
            raise self._too_long(execution)
        return result

    def _set_alarm(self) -> None:
        """Does nothing if the body has ended meanwhile."""
        self._silence()
        if self._task is not None and self._due is not None:
            self._alarm = asyncio.get_running_loop().call_at(self._due, self._expire)

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel(CANCEL_MESSAGE)

    def _too_long(self, execution: Execution) -> TimeoutError:
        limit = format_duration(self._granted.total_seconds())
        return TimeoutError(f"{execution.function_name}{{{execution.key}}} took longer than its Timeout of {limit}")


def _is_current(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
