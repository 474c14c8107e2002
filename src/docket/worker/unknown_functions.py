"""Tasks of functions that this worker does not know, and
of functions whose tasks wait for such a worker as this."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from docket.codec import encode_error, error_text
from docket.errors import TaskNotRegistered
from docket.instrumentation import TASKS_FAILED
from docket.ledger import Ending, SettleResult
from docket.ledger.endings import ERROR, ending_event
from docket.ledger.unknown_functions import fail_unknown, unknown_functions
from docket.model.states import ExecutionState

if TYPE_CHECKING:
    from .worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")


def not_registered(name: str) -> TaskNotRegistered:
    return TaskNotRegistered(
        f"no live worker knows the task {name!r}: register the function with the worker's docket, or give --tasks"
    )


class UnknownFunctions:
    """What becomes of them. A worker that has to come to an end fails those that nobody knows."""

    def __init__(self, worker: Worker, *, has_to_end: bool) -> None:
        self._worker = worker
        self.has_to_end: bool = has_to_end
        self._told: set[str] = set()

    def settled(self, name: str, answer: SettleResult) -> None:
        """Says once per function that no live worker knows it."""
        if answer is SettleResult.WAITS:
            self._tell(name, "its tasks wait for one that does")

    def failed(self, name: str) -> None:
        self._tell(name, "its tasks fail, since this worker has to come to an end")

    async def fail_waiting(self) -> None:
        """Ends the tasks that wait for a worker that knows their function, where there is none."""
        for function in await unknown_functions(self._worker.docket.ledger):
            if not function.is_known:
                await self._fail(function.name)

    async def _fail(self, name: str) -> None:
        worker, error = self._worker, not_registered(name)
        text = error_text(error)
        tail = Ending(worker.name, text, ERROR, encode_error(error)).pack()
        event = ending_event(ExecutionState.FAILED, worker.name_json, worker.now_ms(), text)
        while failed := await fail_unknown(worker.docket.ledger, name, tail, event):
            self.failed(name)
            TASKS_FAILED.add(failed, worker.labels())

    def _tell(self, name: str, consequence: str) -> None:
        if name not in self._told:
            self._told.add(name)
            logger.warning(
                "Unknown task %r: no live worker knows it; %s. Register the function with a worker's docket, or give --tasks",
                name, consequence,
            )  # fmt: skip
