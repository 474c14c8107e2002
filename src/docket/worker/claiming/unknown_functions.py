"""Tasks of functions that this worker does not know."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from docket.errors import TaskNotRegistered
from docket.instrumentation import TASKS_FAILED
from docket.ledger import SettleResult
from docket.ledger.endings import ending_event, own_ending
from docket.ledger.unknown_functions import fail_unknown, unknown_functions
from docket.model.states import ExecutionState

if TYPE_CHECKING:
    from docket.worker.worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")


def not_registered(name: str) -> TaskNotRegistered:
    return TaskNotRegistered(
        f"no live worker knows the task {name!r}: register the function with the worker's docket, or give --tasks"
    )


class UnknownFunctions:
    """Reports unknown functions. A worker that runs until all tasks are finished also fails the
    tasks whose function no live worker knows."""

    def __init__(self, worker: Worker, *, has_to_end: bool) -> None:
        self._worker = worker
        self.has_to_end: bool = has_to_end
        self._reported: set[str] = set()

    def settled(self, name: str, answer: SettleResult) -> None:
        """Logs once per function that no live worker knows it."""
        if answer is SettleResult.WAITS:
            self._report(name, "its tasks wait for a worker that does")

    def failed(self, name: str) -> None:
        self._report(name, "its tasks fail, because this worker runs until all tasks are finished")

    async def fail_waiting(self) -> None:
        """Fails the tasks that wait for their function, if no live worker knows it."""
        for function in await unknown_functions(self._worker.docket.ledger):
            if not function.is_known:
                await self._fail(function.name)

    async def _fail(self, name: str) -> None:
        worker = self._worker
        ending = own_ending(not_registered(name), worker.name)
        event = ending_event(ExecutionState.FAILED, worker.name_json, worker.now_ms(), ending.error)
        while failed := await fail_unknown(worker.docket.ledger, name, ending, event):
            self.failed(name)
            TASKS_FAILED.add(failed, worker.labels())

    def _report(self, name: str, consequence: str) -> None:
        if name not in self._reported:
            self._reported.add(name)
            logger.warning(
                "Unknown task %r: no live worker knows it; %s. Register the function with a worker's docket, or give --tasks",
                name, consequence,
            )  # fmt: skip
