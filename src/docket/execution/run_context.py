"""The run that the current code belongs to."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docket.dependencies import WorkerView

    from .docket_view import DocketView
    from .execution import Execution

current_docket: ContextVar[DocketView] = ContextVar("current_docket")
"""The docket of the run in this context."""
current_worker: ContextVar[WorkerView] = ContextVar("current_worker")
"""The worker of the run in this context."""
current_execution: ContextVar[Execution] = ContextVar("current_execution")
"""The execution of the run in this context."""


def note_wait(docket: DocketView, key: str) -> None:
    """Notifies the worker that the body of a task waits
    for another task. Does nothing outside a run."""
    execution = current_execution.get(None)
    if execution is not None and execution.epoch:
        current_worker.get().body_waits(execution, docket, key)
