"""The failed attempts of a task that is retried: kept while they are of use, and no longer."""

from __future__ import annotations

import pytest

from docket.ledger import (
    Delivery,
    FailedAttempt,
    Settlement,
    SettleResult,
    as_retry,
    read_failed_attempts,
    requeue,
    reschedule,
)
from docket.ledger.endings import Ending
from docket.ledger.settlements import as_going_on
from docket.model.states import ExecutionState
from docket.model.times import from_ms
from docket.storage.schema.settlements import RescheduleItem

from .ledger_client import LedgerClient, completed

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def retry(run: Delivery, attempt: int, error: str = "ValueError: smoke", delay_ms: float = 0) -> Settlement:
    """Attempt number `attempt` has failed."""
    settlement = reschedule(run.key, run.epoch, attempt=attempt + 1, delay_ms=delay_ms)
    return as_retry(settlement, attempt, "a worker", error)


async def failed_attempts(ledger_client: LedgerClient, key: str = "k") -> tuple[FailedAttempt, ...]:
    return read_failed_attempts((await ledger_client.ledger.tasks.get(key)).failed_attempts)


def ttl_ms(ledger_client: LedgerClient, key: str = "k") -> int:
    return ledger_client.client.pttl(ledger_client.ledger.keys.named("failed-attempts", key))


async def test_a_retried_task_keeps_when_where_and_how_its_attempts_failed(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    status = await ledger_client.ledger.tasks.get("k")
    assert status.run is not None
    await ledger_client.settle(retry(run, 1, "ValueError: one"))
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(retry(run, 2, "ValueError: two"))

    first, second = await failed_attempts(ledger_client)
    assert (first.attempt, first.worker, first.error) == (1, "a worker", "ValueError: one")
    assert first.started_at == from_ms(status.run.started_ms)
    assert first.started_at <= first.failed_at <= second.started_at
    assert (second.attempt, second.error) == (2, "ValueError: two")
    ledger_client.checked_state()


async def test_a_task_that_is_not_retried_has_no_key_for_failed_attempts(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(completed(run))

    assert ledger_client.stored_state().failed_attempts == {}
    assert await failed_attempts(ledger_client) == ()


async def test_the_newest_ten_failed_attempts_are_kept(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    for attempt in range(1, 14):
        await ledger_client.settle(retry(run, attempt))
        (run,) = await ledger_client.take(worker)

    assert [row.attempt for row in await failed_attempts(ledger_client)] == list(range(4, 14))


async def test_failed_attempts_live_until_the_retry_is_due_and_a_week_more(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(retry(run, 1, delay_ms=30 * DAY_MS))

    assert 36 * DAY_MS < ttl_ms(ledger_client) <= 37 * DAY_MS


@pytest.mark.parametrize("goes_on", ["requeued", "recovered", "delayed"])
async def test_failed_attempts_stay_while_the_same_attempt_goes_on(ledger_client: LedgerClient, goes_on: str) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(retry(run, 1))
    (run,) = await ledger_client.take(worker)
    if goes_on == "requeued":
        await ledger_client.settle(requeue("k", run.epoch, begun=True))
    elif goes_on == "delayed":
        await ledger_client.settle(reschedule("k", run.epoch, attempt=2, is_delayed=True))
    else:
        ledger_client.bury(worker)

    assert [row.attempt for row in await failed_attempts(ledger_client)] == [1]
    ledger_client.checked_state()


async def test_the_next_run_of_a_chain_has_no_failed_attempts(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(retry(run, 1))
    (run,) = await ledger_client.take(worker)
    next_run = reschedule("k", run.epoch, attempt=1)
    await ledger_client.settle(as_going_on(next_run, Ending("w"), ExecutionState.COMPLETED, '"w"', 0))

    assert await failed_attempts(ledger_client) == ()
    assert ledger_client.checked_state().failed_attempts == {}


async def test_a_replacement_has_no_failed_attempts(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(retry(run, 1))
    await ledger_client.add("k", replace=True)

    assert await failed_attempts(ledger_client) == ()
    assert ledger_client.checked_state().failed_attempts == {}


async def test_the_failed_attempts_of_a_finished_task_expire_with_its_record(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(retry(run, 1))
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(completed(run))

    assert [row.attempt for row in await failed_attempts(ledger_client)] == [1]
    assert 0 < ttl_ms(ledger_client) <= ledger_client.ledger.ttl_ms


async def test_a_task_that_is_cancelled_while_it_waits_for_its_retry_keeps_them_for_a_while(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(retry(run, 1, delay_ms=HOUR_MS))
    await ledger_client.ledger.tasks.cancel("k")

    assert 0 < ttl_ms(ledger_client) <= ledger_client.ledger.ttl_ms


async def test_an_earlier_task_of_the_key_leaves_nothing_to_the_next(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(retry(run, 1, "ValueError: before"))
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(completed(run))

    run = await ledger_client.start(worker, "k")
    assert await failed_attempts(ledger_client) == ()
    await ledger_client.settle(retry(run, 1, "ValueError: now"))
    assert [row.error for row in await failed_attempts(ledger_client)] == ["ValueError: now"]


async def test_a_retry_that_no_longer_counts_adds_nothing(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    assert await ledger_client.settle(retry(run, 1), retry(run, 1)) == [SettleResult.DONE, SettleResult.LOST]

    assert [row.attempt for row in await failed_attempts(ledger_client)] == [1]


@pytest.mark.parametrize("damage", [b"\0", b"\0" * 20, b"\xff" * 40, b"x" * 10_000])
async def test_damaged_rows_are_dropped(ledger_client: LedgerClient, damage: bytes) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(retry(run, 1))
    ledger_client.client.set(ledger_client.ledger.keys.named("failed-attempts", "k"), damage)
    assert await failed_attempts(ledger_client) == ()

    (run,) = await ledger_client.take(worker)
    assert await ledger_client.settle(retry(run, 2)) == [SettleResult.DONE]
    assert [row.attempt for row in await failed_attempts(ledger_client)][-1:] in ([], [2])


async def test_a_key_of_another_type_stops_neither_readers_nor_settlements(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(retry(run, 1))
    name = ledger_client.ledger.keys.named("failed-attempts", "k")
    ledger_client.client.delete(name)
    ledger_client.client.rpush(name, "a")
    assert await failed_attempts(ledger_client) == ()

    (run,) = await ledger_client.take(worker)
    assert await ledger_client.settle(retry(run, 2)) == [SettleResult.DONE]
    assert [row.attempt for row in await failed_attempts(ledger_client)] == [2]


@pytest.mark.parametrize("text", ["x" * 100_000, "ä€😀" * 1000, "\ud800" * 600, ""])
def test_the_text_of_an_error_is_short(text: str) -> None:
    row = as_retry(reschedule("k", 1, attempt=2), 1, "w", text).row
    assert isinstance(row, RescheduleItem)
    assert isinstance(row.failure, bytes)
    assert len(row.failure) < 520
