"""The states of a task, and the ways in which a run, or a task without a run, ends, as statistics
count them (docs/design/statistics.md)."""

from __future__ import annotations

import enum
from typing import NamedTuple


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


class EndingKind(str, enum.Enum):  # noqa: UP042 - a StrEnum would show as its bare value
    """How a run ended, or a task that ended without a run. Each kind equals its value, so it can be
    compared with plain strings."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    RETRIED = "retried"
    CANCELLED = "cancelled"
    STRUCK = "struck"
    DROPPED = "dropped"
    BURIED = "buried"
    UNREADABLE = "unreadable"
    UNKNOWN_FUNCTION = "unknown_function"
    INTERRUPTED = "interrupted"
    LOST = "lost"

    __hash__ = str.__hash__


class Measures(NamedTuple):
    """The numbers that statistics add up over all runs, besides the counts. A settlement carries
    them in this order. At most twelve; the first is also in the history."""

    run_seconds: float = 0.0


NO_MEASURES = Measures()
# The key of each sum in a stored row.
MEASURE_KEYS = (2, *range(5, 16))[: len(NO_MEASURES)]

# The ways in which something went wrong by itself. A cancelled run did not.
FAILURE_KINDS = frozenset(
    {
        *(EndingKind.FAILED, EndingKind.TIMED_OUT, EndingKind.RETRIED, EndingKind.BURIED),
        *(EndingKind.UNREADABLE, EndingKind.UNKNOWN_FUNCTION, EndingKind.LOST),
    }
)
# The numbers in stored counts, from 1. lua/parts/statistics.lua has the same numbers.
KINDS_BY_NUMBER = dict(enumerate(EndingKind, 1))
KIND_NUMBERS = {kind: number for number, kind in KINDS_BY_NUMBER.items()}
