"""When a supervised worker process is replaced."""

from __future__ import annotations

from dataclasses import dataclass

from docket.child.memory import memory_in_use
from docket.model.amounts import show_size
from docket.worker import Worker


@dataclass(frozen=True, slots=True)
class Recycling:
    """The limits of one worker process. Beyond one of them, the supervisor replaces it."""

    max_tasks: int | None = None
    max_memory: int | None = None

    def reason(self, worker: Worker) -> str | None:
        """Why the process of this worker should be replaced, or None. Safe to call from any
        thread."""
        if not worker.is_working or worker.is_stopping:
            return None
        parts = worker.staff
        runs = parts.run_closer.ended_runs
        if self.max_tasks is not None and runs >= self.max_tasks:
            return f"it has run {runs:,} tasks"
        if self.max_memory is not None and (memory := memory_in_use()) > self.max_memory:
            return f"it holds {show_size(memory)} of memory"
        if parts.threads.abandoned * 2 > parts.threads.count:
            return f"{parts.threads.abandoned} of its threads are abandoned"
        return None
