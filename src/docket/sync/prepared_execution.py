"""The executions behind sync executions. Users' values are encoded and decoded in the thread of the
caller, not in the background loop."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from docket.execution import Execution
from docket.execution.stored_results import StoredEnding
from docket.inspection.executions import StoredExecution

if TYPE_CHECKING:
    from docket.docket import Docket


class HeldExecution(Execution[Any]):
    """An execution that a sync execution holds. It may outlive its session."""

    def move_to(self, docket: Docket) -> None:
        """The docket of this session. The execution may be of an earlier one, or of the parent
        process."""
        if self._docket is not docket:
            self._docket = docket
            self.progress.docket = docket

    async def ending(self, timeout: timedelta | None, deadline: datetime | None) -> StoredEnding:
        """Waits for the task to end. The caller decodes the value."""
        return await self._wait_for_ending(timeout, deadline)

    def open(self, ending: StoredEnding) -> Any:
        """The result of the task, or its exception."""
        return ending.open(self.docket, self.function)


class FoundExecution(StoredExecution, HeldExecution):
    """A task that was found by its key."""

    @classmethod
    def of(cls, execution: Execution[Any]) -> FoundExecution:
        found = cls.__new__(cls)
        found.__dict__.update(execution.__dict__)
        return found


class PreparedExecution(HeldExecution):
    """An execution that is encoded before the background loop gets it.

    Encoding runs the code of users: `__getstate__` may read a database, by a connection that
    belongs to the caller's thread, and Django refuses to do that in a thread with an event loop.
    """

    _call: bytes = b""
    _trouble: Exception | None = None

    @property
    def size(self) -> int:
        return len(self._call)

    def prepare(self) -> None:
        """Encodes the call. Raises Unserializable."""
        self._call = super().encode()

    def prepare_in_batch(self) -> None:
        """The same. An error is raised when the batch comes to this call, so that it marks only
        this execution."""
        try:
            self.prepare()
        except Exception as error:
            self._trouble = error

    def encode(self) -> bytes:
        if self._trouble is not None:
            raise self._trouble
        if not self._call:
            return super().encode()
        # Sent once, and not kept: a batch may be large.
        call, self._call = self._call, b""
        return call
