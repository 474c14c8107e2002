"""Runs that were given up while their thread goes on. A thread cannot be stopped."""

from __future__ import annotations

from docket.execution import Execution

from .runs import Runs
from .slots import Slots


class AbandonedRuns:
    """Keeps the slot of such a run until its thread returns, and counts the threads: a worker with
    abandoned threads does not run a suspect, which has to be alone in its process."""

    def __init__(self, runs: Runs, slots: Slots) -> None:
        self._runs = runs
        self._slots = slots

    def abandon(self, execution: Execution | None) -> bool:
        """Counts the thread of the run. Returns whether the slot of the run stays taken."""
        self._runs.abandoned += 1
        run = self._runs.find(execution.epoch) if execution is not None else None
        if run is None or not run.holds_slot:
            return False
        run.holds_slot = False
        self._slots.abandon()
        return True

    def thread_returned(self, *, slot_is_taken: bool) -> None:
        self._runs.abandoned -= 1
        if slot_is_taken:
            self._slots.restore()
