"""The ways to settle a run, in the format of the settle script."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from docket.model.states import NO_MEASURES, STATE_NUMBERS, ExecutionState
from docket.storage.keys import bytes_text, text_bytes
from docket.storage.schema.settlements import (
    BLOCKED,
    DEAD_LETTER,
    ENDS_CHAIN,
    FINISH,
    HOLD,
    PLAIN,
    REQUEUE,
    RESCHEDULE,
    UNKNOWN,
    BlockedItem,
    FinishItem,
    HoldItem,
    LetterItem,
    RequeueItem,
    RescheduleItem,
    UnknownItem,
)

from .endings import Ending, ending_event
from .letters import LetterNote
from .payloads import Payload
from .values import Taken


# twin of: FinishItem (settlements.py)
class CompletedItem(NamedTuple):
    """The beginning of a `CompletedRun`."""

    key: bytes
    epoch: int
    tail: bytes

    def whole(self) -> FinishItem:
        state = STATE_NUMBERS[ExecutionState.COMPLETED]
        return FinishItem(self.key, self.epoch, FINISH, state, False, self.tail, False, PLAIN, False, False)


Row = FinishItem | CompletedItem | LetterItem | RescheduleItem | RequeueItem | UnknownItem | HoldItem | BlockedItem


class SettleResult(enum.IntEnum):
    LOST = 0
    DONE = 1
    KEPT = 2
    CANCELLED = 3
    PAYLOAD_MISSING = 4
    WAITS = 5


SETTLE_RESULTS = tuple(SettleResult)


@dataclass(slots=True)
class Settlement:
    """The end of one run: the row that the settle script takes, and what goes beside it.

    The epoch of the run fences it, and so does the id of the worker that claimed the run, if the id
    is known.
    """

    row: Row
    # The approximate size in a script's arguments, in bytes.
    weight: int = 60
    # The payload that was stored for it, to store it again if it is gone.
    payload: Payload | None = None
    # Needed because two runs of a key may have the same
    # epoch after a failover to a replica with a slow clock.
    worker: str | None = None
    # How statistics count it if it is accepted (ledger/statistics.py). 0: not at all.
    cell: int = 0
    # The numbers that statistics add up, in the order of `Measures`.
    measures: tuple[float, ...] = NO_MEASURES

    @property
    def key(self) -> str:
        return bytes_text(self.row.key)

    @property
    def epoch(self) -> int:
        return self.row.epoch

    @property
    def goes_on(self) -> bool:
        """Whether another run of the task follows that is not a redelivery."""
        row = self.row.settlement if isinstance(self.row, BlockedItem) else self.row
        return isinstance(row, RescheduleItem)

    def row_of_another(self) -> list[Any]:
        """The row for a batch whose other settlements have another worker id."""
        key, epoch, *rest = self.row.whole() if isinstance(self.row, CompletedItem) else self.row
        return [key, (epoch, self.worker.encode() if self.worker is not None else False), *rest]


def finish(
    key: str,
    epoch: int,
    state: ExecutionState,
    ttl_ms: int,
    tail: bytes,
    event: str,
    *,
    letter: LetterNote | None = None,
    has_progress: bool = True,
    payload: Payload | None = None,
) -> Settlement:
    """Finishes the task. The payload, if given, is its result. With a letter the task is kept as a
    dead letter."""
    row = FinishItem(
        text_bytes(key),
        epoch,
        FINISH,
        STATE_NUMBERS[state],
        ttl_ms,
        tail,
        event,
        PLAIN,
        has_progress,
        payload is not None,
    )
    weight = len(key) + len(tail) + len(event) + 60
    if letter is None:
        return Settlement(row, weight, payload)
    kept = LetterItem(*row._replace(purpose=DEAD_LETTER), letter.row())
    return Settlement(kept, weight + letter.weight, payload)


def complete(key: str, epoch: int, tail: bytes) -> Settlement:
    """Finishes a task that a worker ran and that made no progress. The ending has the docket's time
    to live."""
    return Settlement(CompletedItem(text_bytes(key), epoch, tail), len(key) + len(tail) + 60)


def as_chain_end(settlement: Settlement) -> Settlement:
    """Ends an automatic task, which workers must not schedule again until a newer deploy starts."""
    row = settlement.row
    if isinstance(row, CompletedItem):
        row = row.whole()
    if isinstance(row, FinishItem | LetterItem):
        settlement.row = row._replace(purpose=row.purpose | ENDS_CHAIN)
    return settlement


def reschedule(
    key: str,
    epoch: int,
    *,
    attempt: int,
    delay_ms: float | None = None,
    due_ms: float | None = None,
    function_name: str | None = None,
    call: bytes | None = None,
    payload: Payload | None = None,
    is_delayed: bool = False,
) -> Settlement:
    """Schedules the task again, after a delay by the server's clock or at a time. `call` or
    `payload` replaces the call of the task.

    `is_delayed`: the run has not begun, so the next run belongs to the same submission. If the run
    has ended, `with_ending` or, for a retry, `with_failure` adds how.
    """
    relative = due_ms is None
    ms = max(delay_ms or 0, 0) if relative else due_ms
    name = text_bytes(function_name) if function_name is not None else False
    if payload is not None:
        call = payload.reference
    row = RescheduleItem(
        text_bytes(key),
        epoch,
        RESCHEDULE,
        relative,
        ms,
        attempt,
        name,
        call or False,
        is_delayed,
        payload is not None,
    )
    return Settlement(row, len(key) + len(call or b"") + 60, payload)


def with_ending(settlement: Settlement, state: ExecutionState, tail: bytes, event: str) -> Settlement:
    """Adds the ending of the run to a reschedule that
    is not a retry: it is published, not stored."""
    assert isinstance(settlement.row, RescheduleItem)
    settlement.row = settlement.row._replace(state=STATE_NUMBERS[state], tail=tail, event=event)
    settlement.weight += len(tail) + len(event)
    return settlement


def as_going_on(
    settlement: Settlement, ending: Ending, state: ExecutionState, worker_json: str, completed_ms: float
) -> Settlement:
    """Adds the ending of a run after which the task runs again."""
    event = ending_event(state, worker_json, completed_ms, ending.error)
    return with_ending(settlement, state, ending.pack(), event[:-1] + ',"goes_on":true}')


def with_failure(settlement: Settlement, failed_attempt: bytes, error_json: str) -> Settlement:
    """Adds the failure of the run to a reschedule that is a retry."""
    assert isinstance(settlement.row, RescheduleItem)
    settlement.row = settlement.row._replace(failure=failed_attempt, error=error_json)
    settlement.weight += len(failed_attempt) + len(error_json)
    return settlement


def requeue(key: str, epoch: int, *, delay_ms: float = 0, begun: bool = False) -> Settlement:
    """Requeues the task.

    `begun`: the body has run at least in part, so the next run is a redelivery.
    """
    return Settlement(RequeueItem(text_bytes(key), epoch, REQUEUE, delay_ms, begun))


def unknown_function(key: str, epoch: int, *, only_if_known: bool = False) -> Settlement:
    """Leaves the task to a worker that knows its function.

    If no live worker knows it, the result is WAITS. With `only_if_known` the result is KEPT
    instead, and the task does not move.
    """
    return Settlement(UnknownItem(text_bytes(key), epoch, UNKNOWN, only_if_known))


def hold(key: str, epoch: int, rule: str) -> Settlement:
    """Holds the task, whose body has not begun, for a pause. If the pause no longer holds it, the
    result is KEPT, and the task does not move."""
    return Settlement(HoldItem(text_bytes(key), epoch, HOLD, text_bytes(rule)))


def as_blocked(settlement: Settlement, taken: Sequence[Taken]) -> Settlement:
    """Settles a run that has not begun, and gives back what it took from its limits."""
    row = settlement.row
    if not taken or isinstance(row, BlockedItem | CompletedItem):
        return settlement
    weight = settlement.weight + sum(60 + len(counter) + len(submission) for _, counter, submission in taken)
    return Settlement(BlockedItem(row.key, row.epoch, BLOCKED, taken, row), weight, settlement.payload)
