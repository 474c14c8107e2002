"""A replica takes over that lacks the last writes, and
its clock is behind the last epoch that was given out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from docket.ledger import Delivery, Settlement, SettleResult, requeue, reschedule

from .ledger_client import LedgerClient, completed

DONE, LOST = SettleResult.DONE, SettleResult.LOST


def of(worker: str, settlement: Settlement) -> Settlement:
    settlement.worker = worker
    return settlement


async def one_epoch_for_two(ledger_client: LedgerClient) -> tuple[tuple[str, Delivery], tuple[str, Delivery]]:
    """Two workers that have claimed a task under the same
    epoch, of which the server knows the second only."""
    first, second = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("k")
    # The clock was set back: it is behind the last epoch, and epochs follow each other one by one.
    ledger_client.client.set(ledger_client.ledger.keys.key("epoch"), (ledger_client.now() + 3_600_000) * 1000)
    replicated: dict[Any, Any] = {name: ledger_client.client.dump(name) for name in ledger_client.client.keys("*")}
    (one,) = await ledger_client.take(first)
    for name in ledger_client.client.keys("*"):
        ledger_client.client.delete(name)
    for name, value in replicated.items():
        ledger_client.client.restore(name, 0, value)
    (other,) = await ledger_client.take(second)
    assert (one.key, one.epoch) == (other.key, other.epoch), "an epoch was given out twice"
    return (first, one), (second, other)


@pytest.mark.parametrize(
    "ending",
    [
        completed,
        lambda run: completed(run, dead_letter=True),
        lambda run: requeue(run.key, run.epoch),
        lambda run: reschedule(run.key, run.epoch, attempt=2, delay_ms=0),
    ],
    ids=["finish", "bury", "requeue", "reschedule"],
)
async def test_a_run_that_the_replica_never_heard_of_cannot_end_the_run_that_has_its_epoch(
    ledger_client: LedgerClient, ending: Callable[[Delivery], Settlement]
) -> None:
    (first, one), (second, other) = await one_epoch_for_two(ledger_client)
    before = ledger_client.checked_state()
    assert await ledger_client.settle(of(first, ending(one))) == [LOST]
    assert ledger_client.checked_state() == before
    assert await ledger_client.settle(of(second, ending(other))) == [DONE]
    ledger_client.checked_state()


async def test_endings_of_several_worker_ids_are_told_apart_in_one_batch(ledger_client: LedgerClient) -> None:
    """A worker that had to take a new id still writes
    endings of runs that it began under the former one."""
    (first, one), (second, other) = await one_epoch_for_two(ledger_client)
    await ledger_client.add("more")
    (more,) = await ledger_client.take(first)
    answers = await ledger_client.settle(
        of(first, completed(more)), of(first, completed(one)), of(second, completed(other))
    )
    assert answers == [DONE, LOST, DONE]
    assert not ledger_client.checked_state().tasks
