"""Bodies that wait for other tasks of their own docket:
while they hold all slots, none of those can begin."""

from __future__ import annotations

import logging
import time

from docket.execution import Execution

from .slots import Slots

logger: logging.Logger = logging.getLogger("docket.worker")

# For each function.
SECONDS_BETWEEN_WARNINGS = 60.0


class WaitingBodies:
    """Warns of a possible dead-lock. In a dead-lock the
    last body that begins to wait finds all slots taken."""

    def __init__(self, worker: str, slots: Slots) -> None:
        self._worker = worker
        self._slots = slots
        self._warned: dict[str, float] = {}

    def note(self, execution: Execution, key: str) -> None:
        """This body waits for a task that has not begun."""
        if not self._slots.are_all_taken:
            return
        name, now = execution.function_name, time.monotonic()
        if now - self._warned.get(name, -SECONDS_BETWEEN_WARNINGS) < SECONDS_BETWEEN_WARNINGS:
            return
        self._warned[name] = now
        logger.warning(
            "%s waits for the result of task %r, which has not begun, while all %d slots of worker %s are taken: if the "
            "other bodies wait like this, too, and no other worker runs these tasks, nothing goes on (a dead-lock). Raise the "
            "concurrency, or run the tasks that are waited for on another worker or docket",
            execution.call_repr(),
            key,
            self._slots.count,
            self._worker,
            extra=execution.specific_labels(),
        )
