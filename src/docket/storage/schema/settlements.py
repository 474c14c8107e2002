"""The rows of the settle script: the ways to settle a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

FINISH, RESCHEDULE, REQUEUE, BLOCKED, UNKNOWN, HOLD = range(6)
# The purpose of a finish. DEAD_LETTER and ENDS_CHAIN may be added.
PLAIN, DEAD_LETTER, ENDS_CHAIN = range(3)


# twin of: CompletedItem (settlements.py)
class FinishItem(NamedTuple):
    key: bytes
    epoch: int
    kind: int
    state: int
    # False: the docket's time to live.
    ttl: int | bool
    tail: bytes
    # False: the script writes the event of a run that has completed.
    event: str | bool
    purpose: int
    has_progress: bool
    # Whether the result is a stored payload.
    is_stored: bool


class LetterItem(NamedTuple):
    """A finish that may also keep the task as a dead letter."""

    key: bytes
    epoch: int
    kind: int
    state: int
    ttl: int | bool
    tail: bytes
    event: str | bool
    purpose: int
    has_progress: bool
    is_stored: bool
    # A `LetterFields`.
    letter: tuple[Any, ...]


class RescheduleItem(NamedTuple):
    key: bytes
    epoch: int
    kind: int
    is_relative: bool
    ms: float
    attempt: int
    # False: the function stays.
    name: bytes | bool
    # False: the call stays.
    call: bytes | bool
    # Whether the next run is of the same submission.
    same_submission: bool
    # Whether the call is the reference to a payload.
    is_stored: bool
    # Only for a run that has ended, not for a retry.
    state: int | bool = False
    tail: bytes | bool = False
    event: str | bool = False
    # Only for a retry: the row of its failed attempt, and the text of its error as JSON.
    failure: bytes | bool = False
    error: str | bool = False


class RequeueItem(NamedTuple):
    key: bytes
    epoch: int
    kind: int
    delay: float
    has_begun: bool


class BlockedItem(NamedTuple):
    key: bytes
    epoch: int
    kind: int
    # What the run took from its limits.
    taken: Sequence[Any]
    # An item of another kind.
    settlement: tuple[Any, ...]


class HoldItem(NamedTuple):
    key: bytes
    epoch: int
    kind: int
    # The id of the pause that matches.
    rule: bytes


class UnknownItem(NamedTuple):
    key: bytes
    epoch: int
    kind: int
    # Whether to keep the run unless another live worker knows the function.
    only_if_known: bool


class CompletedRun(NamedTuple):
    """A finish of a run that completed, without progress and with a small result. Most runs end so:
    the script adds the other fields of a finish itself. The measures of the run follow."""

    key: bytes
    epoch: int
    tail: bytes
    # 0: not counted.
    cell: int
