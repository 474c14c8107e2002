"""The life of a task, in names and numbers."""

from __future__ import annotations

import enum


class ExecutionState(str, enum.Enum):  # noqa: UP042 - a StrEnum would show as its bare value
    """Where a task is in its life. Equal to its value, so that stored and shown states compare."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    __hash__ = str.__hash__

    @property
    def finished(self) -> bool:
        return self in FINISHED


FINISHED = frozenset({ExecutionState.COMPLETED, ExecutionState.FAILED, ExecutionState.CANCELLED})

# As stored in finished records; lua/parts/records.lua has the same numbers.
STATE_NUMBERS = {ExecutionState.COMPLETED: 3, ExecutionState.FAILED: 4, ExecutionState.CANCELLED: 5}
STATES_BY_NUMBER = {number: state for state, number in STATE_NUMBERS.items()}


class Disposition(enum.Enum):
    """What became of a request to schedule."""

    SCHEDULED = "scheduled"
    ALREADY_SCHEDULED = "already_scheduled"
    STRUCK = "struck"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    LOADED = "loaded"
