"""Ends a manual run: one that its caller has claimed with `Execution.claim`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from docket._version import __version__
from docket.codec.error_texts import class_name
from docket.errors import LeaseLost, TaskFailed
from docket.ledger import Ending, RunEnding, Settlement, SettleResult, finish
from docket.ledger.endings import ELSEWHERE, ERROR, VALUE, cut, ending_event, run_ending
from docket.ledger.letter_notes import DeathCause, LetterNote, RunNote
from docket.ledger.payloads import LARGEST_CALL, call_payload
from docket.ledger.statistics import cell_of
from docket.ledger.workers import as_json
from docket.model.ending_kinds import KIND_NUMBERS, EndingKind
from docket.model.keeping import Keep
from docket.model.states import ExecutionState

from .next_run import NextRun

if TYPE_CHECKING:
    from .execution import Execution


_KINDS = {
    ExecutionState.COMPLETED: KIND_NUMBERS[EndingKind.SUCCEEDED],
    ExecutionState.FAILED: KIND_NUMBERS[EndingKind.FAILED],
    ExecutionState.CANCELLED: KIND_NUMBERS[EndingKind.CANCELLED],
}


async def end_manual_run(
    execution: Execution[Any], state: ExecutionState, error: str | None = None, result_key: str | None = None
) -> None:
    """Settles the run, or claims a waiting task and settles that run.

    Raises RuntimeError if the task neither waits nor is run by this execution, and LeaseLost if the
    run no longer counts.
    """
    named = execution.worker
    if not execution.epoch and not await execution.claim(execution.worker or "nobody"):
        raise RuntimeError(f"task {execution.key!r} is neither waiting nor run by this execution")
    ending = _ending(execution, named, state, error, result_key)
    docket, now = execution.docket, execution.docket.now()
    worker, now_ms = as_json(execution.worker or ""), now.timestamp() * 1000
    next_run = execution.next_run
    if next_run is not None:
        settlement = await _schedule_next(execution, next_run, run_ending(ending, state, worker, now_ms))
    else:
        event = ending_event(state, worker, now_ms, ending.error)
        letter = _letter(docket.ledger.keep, ending) if state is ExecutionState.FAILED else None
        settlement = finish(
            execution.key, execution.epoch, state, docket.ledger.ttl_ms, ending.pack(), event, letter=letter
        )
    settlement.worker = docket.manual_runs.id_of(execution.epoch)
    _count(execution, state, now, settlement)
    (answer,) = await docket.ledger.settle([settlement])
    epoch, execution.epoch, execution.next_run = execution.epoch, 0, None
    docket.manual_runs.release(epoch)
    if answer is SettleResult.LOST and not await _has_ended(execution, epoch):
        raise LeaseLost(
            f"this run of task {execution.key!r} no longer counts: it was replaced, or its lease ended and the task was put back"
        )
    execution.state, execution.completed_at, execution.error = state, now, ending.error
    if next_run is not None:
        await execution.sync()


def _count(execution: Execution[Any], state: ExecutionState, now: datetime, settlement: Settlement) -> None:
    """What statistics count if the settlement is accepted."""
    started = execution.started_at or now
    settlement.seconds = max((now - started).total_seconds(), 0.0)
    waited_ms = (started - execution.when).total_seconds() * 1000
    settlement.cell = cell_of(_KINDS[state], settlement.seconds, waited_ms)


def _ending(
    execution: Execution[Any], worker: str | None, state: ExecutionState, error: str | None, result_key: str | None
) -> Ending:
    """Made after the claim: an exception is sealed for the run's epoch."""
    if result_key:
        return Ending(worker, error, ELSEWHERE, result_key.encode())
    payloads, address = execution.docket.payloads, (execution.key, execution.epoch, state)
    if error:
        shown = payloads.error_text(TaskFailed(error)) if payloads.encrypts else error
        return Ending(worker, shown, ERROR, payloads.seal_error(*address, TaskFailed(error)))
    if state is ExecutionState.COMPLETED and payloads.signs:
        return Ending(worker, kind=VALUE, payload=payloads.seal_result(*address, execution.function, None))
    return Ending(worker, error)


def _letter(keep: Keep, ending: Ending) -> LetterNote | None:
    if keep.is_off:
        return None
    rest = RunNote(ending.worker, __version__).pack()
    return LetterNote(
        DeathCause.FAILED,
        keep.age_ms,
        keep.letters,
        keep.size,
        class_name(TaskFailed()),
        text=cut(ending.error) or "",
        rest=rest,
    )


async def _schedule_next(execution: Execution[Any], next_run: NextRun, ending: RunEnding) -> Settlement:
    call, payload = next_run.call, None
    if call is not None and len(call) > LARGEST_CALL:
        payload = call_payload(call)
        await execution.docket.ledger.payloads.store(payload)
    return next_run.settlement(execution.key, execution.epoch, payload=payload, ending=ending)


async def _has_ended(execution: Execution[Any], epoch: int) -> bool:
    """Whether the server wrote an earlier attempt to settle, and only its answer was lost."""
    finished = (await execution.docket.ledger.get(execution.key)).finished
    return finished is not None and finished.epoch == epoch
