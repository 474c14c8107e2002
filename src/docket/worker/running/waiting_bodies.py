"""Warns of task bodies that wait for other tasks of their docket. While such bodies hold all slots,
the other tasks cannot begin."""

from __future__ import annotations

import logging
import time

from docket.execution import Execution

from .slots import Slots

logger: logging.Logger = logging.getLogger("docket.worker")

# Per function.
SECONDS_BETWEEN_WARNINGS = 60.0


class WaitingBodies:
    """Warns of a possible deadlock. In a deadlock, the
    last body that begins to wait finds all slots taken."""

    def __init__(self, worker: str, slots: Slots) -> None:
        self._worker = worker
        self._slots = slots
        self._warned: dict[str, float] = {}

    def note(self, execution: Execution, key: str) -> None:
        """The body of this execution waits for a task that has not begun."""
        if not self._slots.are_all_taken:
            return
        name, now = execution.function_name, time.monotonic()
        if now - self._warned.get(name, -SECONDS_BETWEEN_WARNINGS) < SECONDS_BETWEEN_WARNINGS:
            return
        self._warned[name] = now
        logger.warning(
            "%s waits for the result of task %r, which has not begun, while all %d slots of worker %s are taken. If the "
            "other bodies wait like this, too, and no other worker runs these tasks, this is a deadlock. Raise the "
            "concurrency, or run the awaited tasks on another worker or docket",
            execution.call_repr(),
            key,
            self._slots.count,
            self._worker,
            extra=execution.specific_labels(),
        )
