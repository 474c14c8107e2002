"""Calls and results that are stored apart: each payload has an owner, and none outlives it."""

from __future__ import annotations

from typing import Any

import pytest

from docket.errors import Undecodable
from docket.ledger import Delivery, EnqueueResult, NewTask, SettleResult, finish, requeue, reschedule
from docket.ledger.endings import APART, Ending
from docket.ledger.payloads import Payload, call_payload, result_payload
from docket.model.states import ExecutionState
from docket.storage.records import read_task
from docket.storage.schema.records import APART as STORED_APART

from .invariants import StoredState
from .ledger_client import NO_EVENT, TTL_MS, LedgerClient, completed, ended, new_ledger

FAT = b"f" * 10_000
# Payloads that end together do not expire together.
SPREAD_MS = 30_000
READING_MS = 15_000


async def store(ledger_client: LedgerClient, data: bytes = FAT) -> Payload:
    payload = call_payload(data)
    await ledger_client.ledger.payloads.store(payload)
    return payload


def large_task(key: str, payload: Payload, **options: Any) -> NewTask:
    return NewTask(key, "f", payload.reference, payload=payload, **options)


async def add(ledger_client: LedgerClient, key: str, payload: Payload | None = None, **options: Any) -> EnqueueResult:
    (result,) = await ledger_client.ledger.tasks.enqueue(
        [large_task(key, payload or await store(ledger_client), **options)]
    )
    return result


async def start(ledger_client: LedgerClient, worker: str, key: str) -> Delivery:
    await add(ledger_client, key)
    (run,) = await ledger_client.take(worker)
    return run


def stored(ledger_client: LedgerClient) -> dict[str, tuple[int, int]]:
    return ledger_client.checked_state().payloads


def ttl(stored_state: StoredState) -> int:
    ((_, ttl),) = stored_state.payloads.values()
    return ttl


async def test_a_task_adopts_the_payload_that_its_producer_stored(ledger_client: LedgerClient) -> None:
    payload = await store(ledger_client)
    (_, before) = stored(ledger_client)[payload.id]
    assert 0 < before <= 3_600_000, "until then it expires by itself: the producer may die"
    assert (await add(ledger_client, "task", payload)).scheduled
    assert stored(ledger_client) == {payload.id: (len(FAT), -1)}
    worker = await ledger_client.hire()
    (run,) = await ledger_client.take(worker)
    task = read_task(run.record)
    assert len(run.record) < 200
    assert task.call_size == len(FAT)
    await ledger_client.ledger.payloads.complete(task)
    assert task.call == FAT


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_call_whose_payload_is_gone_is_not_scheduled(ledger_client: LedgerClient, fresh: bool) -> None:
    payload = call_payload(FAT)
    results = await ledger_client.ledger.tasks.enqueue(
        [large_task("lost", payload, fresh=fresh), NewTask("small", "f", b"")]
    )
    assert [(r.scheduled, r.payload_missing) for r in results] == [(False, True), (True, False)]
    assert list(ledger_client.checked_state().tasks) == ["small"]
    await ledger_client.ledger.payloads.store(payload)
    assert (await add(ledger_client, "lost", payload, fresh=fresh)).scheduled


async def test_a_payload_for_a_key_that_is_taken_is_unlinked(ledger_client: LedgerClient) -> None:
    await add(ledger_client, "task")
    before = stored(ledger_client)
    assert not (await add(ledger_client, "task")).scheduled
    assert stored(ledger_client) == before


@pytest.mark.parametrize("replace", [True, False])
async def test_a_call_that_is_repeated_because_its_answer_was_lost_keeps_its_payload(
    ledger_client: LedgerClient, replace: bool
) -> None:
    payload = await store(ledger_client)
    await add(ledger_client, "task", payload, replace=replace)
    await add(ledger_client, "task", payload, replace=replace)
    assert stored(ledger_client) == {payload.id: (len(FAT), -1)}


async def test_a_replacement_takes_the_place_of_the_payload_too(ledger_client: LedgerClient) -> None:
    await add(ledger_client, "task")
    payload = await store(ledger_client)
    await add(ledger_client, "task", payload, replace=True)
    assert list(stored(ledger_client)) == [payload.id]
    await ledger_client.add("task", replace=True)
    assert stored(ledger_client) == {}


async def test_of_several_replacements_in_one_batch_the_last_payload_stays(ledger_client: LedgerClient) -> None:
    payloads = [await store(ledger_client) for _ in range(3)]
    await ledger_client.ledger.tasks.enqueue([large_task("task", payload, replace=True) for payload in payloads])
    assert list(stored(ledger_client)) == [payloads[2].id]


async def test_a_finished_task_keeps_its_payload_as_long_as_its_record(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await start(ledger_client, worker, "task")
    assert await ledger_client.settle(completed(run)) == [SettleResult.DONE]
    assert 0 < ttl(ledger_client.checked_state()) <= TTL_MS + SPREAD_MS
    finished = (await ledger_client.ledger.tasks.get("task")).finished
    assert finished is not None
    await ledger_client.ledger.payloads.complete(finished.task)
    assert finished.task.call == FAT


async def test_without_finished_records_a_payload_goes_with_its_task(ledger_client: LedgerClient) -> None:
    ledger_client.ledger = new_ledger(ledger_client.ledger.server, ledger_client.ledger.keys.prefix, ttl_ms=0)
    worker = await ledger_client.hire()
    run = await start(ledger_client, worker, "task")
    await ledger_client.settle(completed(run, ttl_ms=0))
    await add(ledger_client, "cancelled")
    await ledger_client.ledger.tasks.cancel("cancelled")
    assert stored(ledger_client) == {}


async def test_cancelled_and_cleared_tasks_let_their_payloads_expire(ledger_client: LedgerClient) -> None:
    await add(ledger_client, "cancelled")
    await ledger_client.ledger.tasks.cancel("cancelled")
    assert 0 < ttl(ledger_client.checked_state()) <= TTL_MS + SPREAD_MS
    for number in range(5):
        await add(ledger_client, f"cleared {number}")
    assert await ledger_client.ledger.tasks.clear() == 5
    assert len(stored(ledger_client)) == 6
    assert all(0 < ttl <= TTL_MS + SPREAD_MS for _, ttl in stored(ledger_client).values())


async def test_a_key_that_is_used_again_forgets_the_payloads_of_its_last_run(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await start(ledger_client, worker, "task")
    result = result_payload(run.epoch, FAT, TTL_MS)
    await ledger_client.ledger.payloads.store(result)
    assert await ledger_client.settle(with_result(run, result)) == [SettleResult.DONE]
    assert len(stored(ledger_client)) == 2
    await add(ledger_client, "task")
    # The former result stays for a moment, for whoever is fetching it.
    assert 0 < stored(ledger_client)[result.id][1] <= READING_MS
    assert len(stored(ledger_client)) == 2


async def test_a_retry_keeps_the_payload_and_a_new_call_replaces_it(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await start(ledger_client, worker, "task")
    before = stored(ledger_client)
    await ledger_client.settle(reschedule(run.key, run.epoch, attempt=2))
    assert stored(ledger_client) == before
    (run,) = await ledger_client.take(worker)
    payload = await store(ledger_client)
    await ledger_client.settle(reschedule(run.key, run.epoch, attempt=1, function_name="f", payload=payload))
    assert stored(ledger_client) == {payload.id: (len(FAT), -1)}
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(reschedule(run.key, run.epoch, attempt=1, function_name="f", call=b"small"))
    assert stored(ledger_client) == {}
    (run,) = await ledger_client.take(worker)
    task = read_task(run.record)
    assert (task.call, task.flags & STORED_APART) == (b"small", 0)


async def test_a_next_run_whose_payload_is_gone_waits_for_it_to_be_stored_again(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await start(ledger_client, worker, "task")
    payload = call_payload(FAT)
    again = reschedule(run.key, run.epoch, attempt=1, function_name="f", payload=payload)
    assert await ledger_client.settle(again) == [SettleResult.PAYLOAD_MISSING]
    assert "task" in ledger_client.checked_state().running
    await ledger_client.ledger.payloads.store(payload)
    assert await ledger_client.settle(again) == [SettleResult.DONE]
    assert list(stored(ledger_client)) == [payload.id]


async def test_a_next_run_that_was_cancelled_leaves_no_payload(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await start(ledger_client, worker, "task")
    await ledger_client.ledger.tasks.cancel("task")
    payload = await store(ledger_client)
    again = reschedule(run.key, run.epoch, attempt=1, function_name="f", payload=payload)
    assert await ledger_client.settle(again) == [SettleResult.CANCELLED]
    assert payload.id not in stored(ledger_client)


def with_result(run: Delivery, result: Payload) -> Any:
    tail = Ending("w", kind=APART, payload=result.reference).pack()
    return finish(run.key, run.epoch, ExecutionState.COMPLETED, TTL_MS, tail, NO_EVENT, payload=result)


async def test_a_result_that_is_stored_apart_lives_as_long_as_the_record(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "task")
    result = result_payload(run.epoch, FAT, TTL_MS)
    assert await ledger_client.settle(with_result(run, result)) == [SettleResult.PAYLOAD_MISSING]
    await ledger_client.ledger.payloads.store(result)
    assert stored(ledger_client)[result.id][1] > TTL_MS
    assert await ledger_client.settle(with_result(run, result)) == [SettleResult.DONE]
    assert stored(ledger_client)[result.id][1] <= TTL_MS + SPREAD_MS
    finished = (await ledger_client.ledger.tasks.get("task")).finished
    assert finished is not None
    assert finished.state is ExecutionState.COMPLETED
    # A repeat whose answer was lost harms nothing.
    assert await ledger_client.settle(with_result(run, result)) == [SettleResult.LOST]
    assert await ledger_client.ledger.payloads.fetch(result.id) == FAT
    await ledger_client.add("task")
    assert 0 < stored(ledger_client)[result.id][1] <= READING_MS


async def test_a_dead_letter_keeps_its_payload_until_it_is_removed(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await start(ledger_client, worker, "task")
    await ledger_client.settle(ended(run, ExecutionState.FAILED, dead_letter=True))
    (first,) = stored(ledger_client)
    assert stored(ledger_client)[first][1] == -1
    # A new task of the key does not touch the letter's, and its own letter has one of its own.
    run = await start(ledger_client, worker, "task")
    assert first in stored(ledger_client)
    await ledger_client.settle(ended(run, ExecutionState.FAILED, dead_letter=True))
    assert {ttl for _, ttl in stored(ledger_client).values()} == {-1}
    (older, newer) = sorted(ledger_client.checked_state().letters)
    assert await ledger_client.ledger.letters.discard("a", 1, [older]) == 1
    assert first not in stored(ledger_client)
    assert len(stored(ledger_client)) == 1
    assert await ledger_client.ledger.letters.discard("a", 2, [newer]) == 1
    assert stored(ledger_client) == {}
    assert not ledger_client.checked_state().letters


async def test_a_task_that_lost_its_workers_keeps_its_payload_through_it_all(ledger_client: LedgerClient) -> None:
    await add(ledger_client, "task")
    before = stored(ledger_client)
    while "task" in ledger_client.checked_state().tasks:
        assert stored(ledger_client) == before
        worker = await ledger_client.hire()
        await ledger_client.take(worker)
        ledger_client.bury(worker)
    assert ledger_client.checked_state().dead == {"task"}
    assert stored(ledger_client) == before


async def test_tasks_that_move_do_not_move_their_payloads(ledger_client: LedgerClient) -> None:
    """Three hundred tasks of 100 kB fall due: the scripts read and write their records only."""
    fat = b"f" * 100_000
    for number in range(300):
        await add(ledger_client, f"task {number}", await store(ledger_client, fat), due_ms=ledger_client.later())
    ledger_client.fall_due(*(f"task {number}" for number in range(300)))
    worker = await ledger_client.hire()
    ledger_client.client.config_resetstat()
    while (await ledger_client.ledger.tasks.stage())[0]:
        pass
    runs = await ledger_client.take(worker, 300)
    await ledger_client.settle(*(requeue(run.key, run.epoch) for run in runs))
    touched = ledger_client.client.info("commandstats")
    assert not {"cmdstat_get", "cmdstat_getrange"} & set(touched)
    assert touched["cmdstat_set"]["calls"] <= 2, "that of the epoch"
    assert ledger_client.client.info("stats")["total_net_output_bytes"] < 1_000_000
    assert len(runs) == 300
    assert max(len(run.record) for run in runs) < 200
    assert len(stored(ledger_client)) == 300


async def test_a_payload_that_somebody_deleted_is_told_apart(ledger_client: LedgerClient) -> None:
    await add(ledger_client, "task")
    (id,) = stored(ledger_client)
    ledger_client.client.delete(ledger_client.ledger.keys.payload(id))
    look = await ledger_client.ledger.tasks.get("task")
    assert look.task is not None
    with pytest.raises(Undecodable, match="10,000 bytes"):
        await ledger_client.ledger.payloads.complete(look.task)


async def test_a_late_request_to_store_does_not_put_a_time_to_live_on_an_adopted_payload(
    ledger_client: LedgerClient,
) -> None:
    """A request that was given up may lie in a proxy until
    its repeat was answered and the task was added."""
    payload = await store(ledger_client)
    await add(ledger_client, "task", payload)
    await ledger_client.ledger.payloads.store(payload)
    assert stored(ledger_client) == {payload.id: (len(FAT), -1)}


async def test_a_script_frees_a_few_megabytes_and_leaves_the_rest_to_expire(ledger_client: LedgerClient) -> None:
    large = bytes(3_000_000)
    payloads = [call_payload(large) for _ in range(4)]
    for n, payload in enumerate(payloads):
        await ledger_client.ledger.payloads.store(payload)
        await add(ledger_client, f"task {n}", payload)
    before = [await store(ledger_client) for _ in range(4)]
    await ledger_client.ledger.tasks.enqueue(
        [large_task(f"task {n}", payload, replace=True) for n, payload in enumerate(before)]
    )
    left = {id: ttl for id, (size, ttl) in ledger_client.stored_state().payloads.items() if size == len(large)}
    assert len(left) == 2
    assert all(0 < ttl <= 5_000 for ttl in left.values())


async def test_staging_stops_at_so_many_bytes_and_goes_on_when_asked_again(ledger_client: LedgerClient) -> None:
    """Records that are just small enough: 500 of them have two megabytes."""
    keys = [f"task {number}" for number in range(500)]
    await ledger_client.add(*keys, call=b"c" * 4_000, due_ms=ledger_client.later())
    ledger_client.fall_due(*keys)
    moved: list[int] = []
    while sum(moved) < 500:
        moved.append((await ledger_client.ledger.tasks.stage()).moved)
        assert 0 < moved[-1] <= 150
    stored_state = ledger_client.checked_state()
    assert not stored_state.schedule
    assert [entry.key for entry in stored_state.streams["stream"].entries] == sorted(keys), (
        "in the order of the schedule"
    )
