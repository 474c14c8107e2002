"""How a run ends: `decide` makes the outcome, `settle` writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from docket.dependencies import TaskOutcome
from docket.execution import Execution
from docket.instrumentation import (
    TASKS_CANCELLED,
    TASKS_FAILED,
    TASKS_PERPETUATED,
    TASKS_RETRIED,
    TASKS_SUCCEEDED,
)
from docket.ledger import Settlement
from docket.model.ending_kinds import KIND_NUMBERS, EndingKind

Counters = tuple[Any, ...]

# The numbers of ending kinds.
SUCCEEDED_KIND: int = KIND_NUMBERS[EndingKind.SUCCEEDED]
FAILED_KIND: int = KIND_NUMBERS[EndingKind.FAILED]
TIMED_OUT_KIND: int = KIND_NUMBERS[EndingKind.TIMED_OUT]
RETRIED_KIND: int = KIND_NUMBERS[EndingKind.RETRIED]
CANCELLED_KIND: int = KIND_NUMBERS[EndingKind.CANCELLED]
STRUCK_KIND: int = KIND_NUMBERS[EndingKind.STRUCK]
DROPPED_KIND: int = KIND_NUMBERS[EndingKind.DROPPED]
UNREADABLE_KIND: int = KIND_NUMBERS[EndingKind.UNREADABLE]
UNKNOWN_FUNCTION_KIND: int = KIND_NUMBERS[EndingKind.UNKNOWN_FUNCTION]
INTERRUPTED_KIND: int = KIND_NUMBERS[EndingKind.INTERRUPTED]

SUCCEEDED: Counters = (TASKS_SUCCEEDED,)
CANCELLED: Counters = (TASKS_CANCELLED,)


@dataclass(slots=True)
class Outcome:
    """What is written when a run ends, and what is counted once the server has accepted it."""

    # None: nothing is written.
    settlement: Settlement | None
    # None: the run is not reported, because its body did not begin or was reported before.
    execution: Execution | None = None
    # Counted only if the settlement is accepted.
    counters: Counters = ()
    # The ending kind that statistics count, likewise; 0 if the run is not counted.
    kind: int = 0
    # The part of the task that is reported if the run was superseded.
    where: str = "worker"
    # The error of a run that failed. Without an execution, the task could not be read.
    error: BaseException | None = None


# A script has already written the end of the run.
CLOSED = Outcome(None)
# The lease is lost, or may be. The end is written only if the lease turns out to be kept.
GIVEN_UP = Outcome(None)


def counters_of(ended: TaskOutcome, *, retried: bool = False, perpetuated: bool = False) -> Counters:
    first = TASKS_SUCCEEDED if ended.exception is None else TASKS_FAILED
    if retried:
        return first, TASKS_RETRIED
    return (first, TASKS_PERPETUATED) if perpetuated else (first,)
