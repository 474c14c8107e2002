"""The states of a task."""

from __future__ import annotations

import enum


class ExecutionState(str, enum.Enum):  # noqa: UP042 - a StrEnum would show as its bare value
    """The state of a task. Each state equals its
    value, so it can be compared with plain strings."""

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

# The numbers in finished records. lua/parts/records.lua has the same numbers.
STATE_NUMBERS = {ExecutionState.COMPLETED: 3, ExecutionState.FAILED: 4, ExecutionState.CANCELLED: 5}
STATES_BY_NUMBER = {number: state for state, number in STATE_NUMBERS.items()}


class Disposition(enum.Enum):
    """The result of scheduling a task."""

    SCHEDULED = "scheduled"
    ALREADY_SCHEDULED = "already_scheduled"
    STRUCK = "struck"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    LOADED = "loaded"
