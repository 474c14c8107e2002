"""The progress of a task, for code without an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from docket.docket import Docket
from docket.execution import Execution as AsyncExecution
from docket.execution import ExecutionProgress as AsyncProgress
from docket.execution.execution import move_to

from .producer import Producer


class ExecutionProgress:
    """The progress of one task. Every process can read it and write it. The attributes are as of
    the last write or `sync()`."""

    __slots__ = ("_execution", "_producer")

    def __init__(self, producer: Producer, execution: AsyncExecution) -> None:
        self._producer = producer
        self._execution = execution

    @property
    def current(self) -> int | None:
        """The value of the last write or `sync()`."""
        return self._execution.progress.current

    @property
    def total(self) -> int:
        """The value of the last write or `sync()`."""
        return self._execution.progress.total

    @property
    def message(self) -> str | None:
        """The value of the last write or `sync()`."""
        return self._execution.progress.message

    @property
    def updated_at(self) -> datetime | None:
        """When the progress was written last, or None."""
        return self._execution.progress.updated_at

    def set_total(self, total: int) -> None:
        """Sets the total; it has to be at least 1."""
        self._run(lambda progress: progress.set_total(total))

    def increment(self, amount: int = 1) -> None:
        """Adds to the stored value, whichever process has written it."""
        self._run(lambda progress: progress.increment(amount))

    def set(self, current: int) -> None:
        """Sets the current value, higher or lower than before."""
        self._run(lambda progress: progress.set(current))

    def set_message(self, message: str | None) -> None:
        """Sets the message. None removes it."""
        self._run(lambda progress: progress.set_message(message))

    def update(self, *, current: int | None = None, total: int | None = None, message: str | None = None) -> None:
        """Sets several fields at once. Fields that are not given do not change."""
        self._run(lambda progress: progress.update(current=current, total=total, message=message))

    def sync(self) -> None:
        """Reads the stored progress, also after the task has ended."""
        self._run(lambda progress: progress.sync())

    def _run(self, call: Callable[[AsyncProgress], Awaitable[None]]) -> None:
        async def on_docket(docket: Docket) -> None:
            move_to(self._execution, docket)
            await call(self._execution.progress)

        self._producer.run(on_docket)
