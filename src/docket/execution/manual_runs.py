"""Manual runs: a program claims a task with `Execution.claim` and ends the run itself."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

from docket._aio import cancel_and_wait
from docket._version import __version__
from docket.codec.error_texts import class_name
from docket.errors import TRANSIENT, LeaseLost, TaskFailed
from docket.ledger import Ending, Ledger, Settlement, SettleResult, as_going_on, finish
from docket.ledger.endings import ELSEWHERE, ERROR, VALUE, cut, ending_event
from docket.ledger.fleet import as_json, manual_run_id
from docket.ledger.letters import DeathCause, LetterNote, RunNote
from docket.ledger.payloads import LARGEST_CALL, call_payload
from docket.ledger.statistics import cell_of
from docket.model.retention import Keep
from docket.model.states import KIND_NUMBERS, EndingKind, ExecutionState, Measures

if TYPE_CHECKING:
    from .execution import Execution, NextRun


class ManualRuns:
    """Renews the leases of the manual runs of one docket.

    If the process of a run dies, or its event loop is blocked
    for longer than the lease, the sweep puts the task back.
    """

    def __init__(self, ledger: Ledger, lease_ms: int, name: str) -> None:
        self._ledger = ledger
        self._lease_ms = lease_ms
        self._name = name
        self._lease_ids: dict[int, str] = {}
        self._renewing: asyncio.Task[None] | None = None

    async def claim(self, key: str, worker: str) -> tuple[float, int]:
        """The server's time in ms and the epoch of the new
        run. The epoch is 0 if the task is not waiting."""
        # Each run has its own lease. If the answer to a
        # claim is lost, that lease is not renewed and ends.
        lease_id = manual_run_id(worker)
        now_ms, epoch = await self._ledger.tasks.claim_by_key(key, worker, lease_id, self._lease_ms)
        if epoch:
            self._lease_ids[epoch] = lease_id
            if self._renewing is None:
                self._renewing = asyncio.create_task(self._renew(), name=f"{self._name}  - manual runs")
        return now_ms, epoch

    def id_of(self, epoch: int) -> str | None:
        """The worker id in the run record, if this docket has claimed the run."""
        return self._lease_ids.get(epoch)

    def release(self, epoch: int) -> None:
        """Stops renewing the lease of a run that is over."""
        self._lease_ids.pop(epoch, None)

    async def aclose(self) -> None:
        self._lease_ids.clear()
        if self._renewing is not None:
            await cancel_and_wait([self._renewing], "docket closes")

    async def _renew(self) -> None:
        try:
            while self._lease_ids:
                await asyncio.sleep(self._lease_ms / 3000)
                if self._lease_ids:
                    await self._extend()
        finally:
            self._renewing = None
            self._ledger.server.outages.forget(self)

    async def _extend(self) -> None:
        try:
            await self._ledger.tasks.renew_manual_leases(list(self._lease_ids.values()), self._lease_ms)
            self._ledger.server.outages.passed(self)
        except TRANSIENT as error:
            self._ledger.server.outages.failed(self, "renewing the leases of manual runs", error)


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
        settlement = as_going_on(await _schedule_next(execution, next_run), ending, state, worker, now_ms)
    else:
        event = ending_event(state, worker, now_ms, ending.error)
        letter = _letter(docket.ledger.keep, ending) if state is ExecutionState.FAILED else None
        settlement = finish(
            execution.key, execution.epoch, state, docket.ledger.ttl_ms, ending.pack(), event, letter=letter
        )
    settlement.worker = docket.manual_runs.id_of(execution.epoch)
    _count(execution, state, now, settlement)
    (answer,) = await docket.ledger.tasks.settle([settlement])
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
    """Adds the count for the statistics, which holds if the settlement is accepted."""
    started = execution.started_at or now
    seconds = max((now - started).total_seconds(), 0.0)
    waited_ms = (started - execution.when).total_seconds() * 1000
    settlement.cell, settlement.measures = cell_of(_KINDS[state], seconds, waited_ms), Measures(seconds)


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


async def _schedule_next(execution: Execution[Any], next_run: NextRun) -> Settlement:
    call, payload = next_run.call, None
    if call is not None and len(call) > LARGEST_CALL:
        payload = call_payload(call)
        await execution.docket.ledger.payloads.store(payload)
    return next_run.settlement(execution.key, execution.epoch, payload=payload)


async def _has_ended(execution: Execution[Any], epoch: int) -> bool:
    """Whether the server wrote an earlier attempt to settle, and only its answer was lost."""
    finished = (await execution.docket.ledger.tasks.get(execution.key)).finished
    return finished is not None and finished.epoch == epoch
