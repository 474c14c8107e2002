"""Calls and results that are stored apart: each payload has an owner, and none outlives it."""

from __future__ import annotations

from typing import Any

import pytest

from docket.errors import Undecodable
from docket.ledger import Answer, Delivery, Order, Receipt, finish, hand_back, reschedule
from docket.ledger.endings import APART, Ending
from docket.ledger.payloads import Payload, call_payload, result_payload
from docket.model.states import ExecutionState
from docket.storage.records import STORED_APART, read_task

from .books import Books
from .desk import NO_EVENT, TTL_MS, Desk, completed, ended, new_ledger

FAT = b"f" * 10_000
# Payloads that end together do not expire together.
SPREAD_MS = 30_000
READING_MS = 15_000


async def store(desk: Desk, data: bytes = FAT) -> Payload:
    payload = call_payload(data)
    await desk.ledger.payloads.store(payload)
    return payload


def fat_order(key: str, payload: Payload, **options: Any) -> Order:
    return Order(key, "f", payload.reference, payload=payload, **options)


async def add(desk: Desk, key: str, payload: Payload | None = None, **options: Any) -> Receipt:
    (receipt,) = await desk.ledger.enqueue([fat_order(key, payload or await store(desk), **options)])
    return receipt


async def start(desk: Desk, worker: str, key: str) -> Delivery:
    await add(desk, key)
    (run,) = await desk.take(worker)
    return run


def stored(desk: Desk) -> dict[str, tuple[int, int]]:
    return desk.sound_books().payloads


def ttl(books: Books) -> int:
    ((_, ttl),) = books.payloads.values()
    return ttl


async def test_a_task_adopts_the_payload_that_its_producer_stored(desk: Desk) -> None:
    payload = await store(desk)
    (_, before) = stored(desk)[payload.id]
    assert 0 < before <= 3_600_000, "until then it expires by itself: the producer may die"
    assert (await add(desk, "task", payload)).scheduled
    assert stored(desk) == {payload.id: (len(FAT), -1)}
    worker = await desk.hire()
    (run,) = await desk.take(worker)
    task = read_task(run.record)
    assert len(run.record) < 200
    assert task.call_size == len(FAT)
    await desk.ledger.payloads.complete(task)
    assert task.call == FAT


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_call_whose_payload_is_gone_is_not_scheduled(desk: Desk, fresh: bool) -> None:
    payload = call_payload(FAT)
    receipts = await desk.ledger.enqueue([fat_order("lost", payload, fresh=fresh), Order("small", "f", b"")])
    assert [(r.scheduled, r.payload_missing) for r in receipts] == [(False, True), (True, False)]
    assert list(desk.sound_books().tasks) == ["small"]
    await desk.ledger.payloads.store(payload)
    assert (await add(desk, "lost", payload, fresh=fresh)).scheduled


async def test_a_payload_for_a_key_that_is_taken_is_unlinked(desk: Desk) -> None:
    await add(desk, "task")
    before = stored(desk)
    assert not (await add(desk, "task")).scheduled
    assert stored(desk) == before


@pytest.mark.parametrize("replace", [True, False])
async def test_a_call_that_is_repeated_because_its_answer_was_lost_keeps_its_payload(desk: Desk, replace: bool) -> None:
    payload = await store(desk)
    await add(desk, "task", payload, replace=replace)
    await add(desk, "task", payload, replace=replace)
    assert stored(desk) == {payload.id: (len(FAT), -1)}


async def test_a_replacement_takes_the_place_of_the_payload_too(desk: Desk) -> None:
    await add(desk, "task")
    payload = await store(desk)
    await add(desk, "task", payload, replace=True)
    assert list(stored(desk)) == [payload.id]
    await desk.add("task", replace=True)
    assert stored(desk) == {}


async def test_of_several_replacements_in_one_batch_the_last_payload_stays(desk: Desk) -> None:
    payloads = [await store(desk) for _ in range(3)]
    await desk.ledger.enqueue([fat_order("task", payload, replace=True) for payload in payloads])
    assert list(stored(desk)) == [payloads[2].id]


async def test_a_finished_task_keeps_its_payload_as_long_as_its_record(desk: Desk) -> None:
    worker = await desk.hire()
    run = await start(desk, worker, "task")
    assert await desk.settle(completed(run)) == [Answer.DONE]
    assert 0 < ttl(desk.sound_books()) <= TTL_MS + SPREAD_MS
    finished = (await desk.ledger.get("task")).finished
    assert finished is not None
    await desk.ledger.payloads.complete(finished.task)
    assert finished.task.call == FAT


async def test_without_finished_records_a_payload_goes_with_its_task(desk: Desk) -> None:
    desk.ledger = new_ledger(desk.ledger.server, desk.ledger.keys.prefix, ttl_ms=0)
    worker = await desk.hire()
    run = await start(desk, worker, "task")
    await desk.settle(completed(run, ttl_ms=0))
    await add(desk, "cancelled")
    await desk.ledger.cancel("cancelled")
    assert stored(desk) == {}


async def test_cancelled_and_cleared_tasks_let_their_payloads_expire(desk: Desk) -> None:
    await add(desk, "cancelled")
    await desk.ledger.cancel("cancelled")
    assert 0 < ttl(desk.sound_books()) <= TTL_MS + SPREAD_MS
    for number in range(5):
        await add(desk, f"cleared {number}")
    assert await desk.ledger.clear() == 5
    assert len(stored(desk)) == 6
    assert all(0 < ttl <= TTL_MS + SPREAD_MS for _, ttl in stored(desk).values())


async def test_a_key_that_is_used_again_forgets_the_payloads_of_its_last_run(desk: Desk) -> None:
    worker = await desk.hire()
    run = await start(desk, worker, "task")
    result = result_payload(run.epoch, FAT, TTL_MS)
    await desk.ledger.payloads.store(result)
    assert await desk.settle(with_result(run, result)) == [Answer.DONE]
    assert len(stored(desk)) == 2
    await add(desk, "task")
    # The former result stays for a moment, for whoever is fetching it.
    assert 0 < stored(desk)[result.id][1] <= READING_MS
    assert len(stored(desk)) == 2


async def test_a_retry_keeps_the_payload_and_a_new_call_replaces_it(desk: Desk) -> None:
    worker = await desk.hire()
    run = await start(desk, worker, "task")
    before = stored(desk)
    await desk.settle(reschedule(run.key, run.epoch, attempt=2))
    assert stored(desk) == before
    (run,) = await desk.take(worker)
    payload = await store(desk)
    await desk.settle(reschedule(run.key, run.epoch, attempt=1, function_name="f", payload=payload))
    assert stored(desk) == {payload.id: (len(FAT), -1)}
    (run,) = await desk.take(worker)
    await desk.settle(reschedule(run.key, run.epoch, attempt=1, function_name="f", call=b"small"))
    assert stored(desk) == {}
    (run,) = await desk.take(worker)
    task = read_task(run.record)
    assert (task.call, task.flags & STORED_APART) == (b"small", 0)


async def test_a_next_run_whose_payload_is_gone_waits_for_it_to_be_stored_again(desk: Desk) -> None:
    worker = await desk.hire()
    run = await start(desk, worker, "task")
    payload = call_payload(FAT)
    again = reschedule(run.key, run.epoch, attempt=1, function_name="f", payload=payload)
    assert await desk.settle(again) == [Answer.PAYLOAD_MISSING]
    assert "task" in desk.sound_books().running
    await desk.ledger.payloads.store(payload)
    assert await desk.settle(again) == [Answer.DONE]
    assert list(stored(desk)) == [payload.id]


async def test_a_next_run_that_was_cancelled_leaves_no_payload(desk: Desk) -> None:
    worker = await desk.hire()
    run = await start(desk, worker, "task")
    await desk.ledger.cancel("task")
    payload = await store(desk)
    again = reschedule(run.key, run.epoch, attempt=1, function_name="f", payload=payload)
    assert await desk.settle(again) == [Answer.CANCELLED]
    assert payload.id not in stored(desk)


def with_result(run: Delivery, result: Payload) -> Any:
    tail = Ending("w", kind=APART, payload=result.reference).pack()
    return finish(run.key, run.epoch, ExecutionState.COMPLETED, TTL_MS, tail, NO_EVENT, payload=result)


async def test_a_result_that_is_stored_apart_lives_as_long_as_the_record(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "task")
    result = result_payload(run.epoch, FAT, TTL_MS)
    assert await desk.settle(with_result(run, result)) == [Answer.PAYLOAD_MISSING]
    await desk.ledger.payloads.store(result)
    assert stored(desk)[result.id][1] > TTL_MS
    assert await desk.settle(with_result(run, result)) == [Answer.DONE]
    assert stored(desk)[result.id][1] <= TTL_MS + SPREAD_MS
    finished = (await desk.ledger.get("task")).finished
    assert finished is not None
    assert finished.state is ExecutionState.COMPLETED
    # A repeat whose answer was lost harms nothing.
    assert await desk.settle(with_result(run, result)) == [Answer.LOST]
    assert await desk.ledger.payloads.fetch(result.id) == FAT
    await desk.add("task")
    assert 0 < stored(desk)[result.id][1] <= READING_MS


async def test_a_dead_letter_keeps_its_payload_until_it_is_removed(desk: Desk) -> None:
    worker = await desk.hire()
    run = await start(desk, worker, "task")
    await desk.settle(ended(run, ExecutionState.FAILED, dead_letter=True))
    (first,) = stored(desk)
    assert stored(desk)[first][1] == -1
    # A new task of the key does not touch the letter's, and its own letter takes its place.
    run = await start(desk, worker, "task")
    assert first in stored(desk)
    await desk.settle(ended(run, ExecutionState.FAILED, dead_letter=True))
    assert first not in stored(desk)
    assert ttl(desk.sound_books()) == -1
    pipe = desk.client.pipeline()
    for number in range(10_000):
        pipe.zadd(desk.ledger.keys.dead, {f"new {number}": 2**50 + number})
        pipe.hset(desk.ledger.keys.dead_records, f"new {number}", b"x")
    pipe.execute()
    await desk.settle(ended(await desk.start(worker, "other"), ExecutionState.FAILED, dead_letter=True))
    assert stored(desk) == {}


async def test_a_task_that_lost_its_workers_keeps_its_payload_through_it_all(desk: Desk) -> None:
    await add(desk, "task")
    before = stored(desk)
    while "task" in desk.sound_books().tasks:
        assert stored(desk) == before
        worker = await desk.hire()
        await desk.take(worker)
        desk.bury(worker)
    assert desk.sound_books().dead == {"task"}
    assert stored(desk) == before


async def test_tasks_that_move_do_not_move_their_payloads(desk: Desk) -> None:
    """Three hundred tasks of 100 kB fall due: the scripts read and write their records only."""
    fat = b"f" * 100_000
    for number in range(300):
        await add(desk, f"task {number}", await store(desk, fat), due_ms=desk.later())
    desk.fall_due(*(f"task {number}" for number in range(300)))
    desk.client.config_resetstat()
    while (await desk.ledger.stage())[0]:
        pass
    worker = await desk.hire()
    runs = await desk.take(worker, 300)
    await desk.settle(*(hand_back(run.key, run.epoch) for run in runs))
    touched = desk.client.info("commandstats")
    assert not {"cmdstat_get", "cmdstat_getrange"} & set(touched)
    assert touched["cmdstat_set"]["calls"] <= 2, "that of the epoch"
    assert desk.client.info("stats")["total_net_output_bytes"] < 1_000_000
    assert len(runs) == 300
    assert max(len(run.record) for run in runs) < 200
    assert len(stored(desk)) == 300


async def test_a_payload_that_somebody_deleted_is_told_apart(desk: Desk) -> None:
    await add(desk, "task")
    (id,) = stored(desk)
    desk.client.delete(desk.ledger.keys.payload(id))
    look = await desk.ledger.get("task")
    assert look.task is not None
    with pytest.raises(Undecodable, match="10,000 bytes"):
        await desk.ledger.payloads.complete(look.task)


async def test_a_late_request_to_store_does_not_put_a_time_to_live_on_an_adopted_payload(desk: Desk) -> None:
    """A request that was given up may lie in a proxy until its repeat was answered and the task was added."""
    payload = await store(desk)
    await add(desk, "task", payload)
    await desk.ledger.payloads.store(payload)
    assert stored(desk) == {payload.id: (len(FAT), -1)}


async def test_a_script_frees_a_few_megabytes_and_leaves_the_rest_to_expire(desk: Desk) -> None:
    large = bytes(3_000_000)
    payloads = [call_payload(large) for _ in range(4)]
    for n, payload in enumerate(payloads):
        await desk.ledger.payloads.store(payload)
        await add(desk, f"task {n}", payload)
    before = [await store(desk) for _ in range(4)]
    await desk.ledger.enqueue([fat_order(f"task {n}", payload, replace=True) for n, payload in enumerate(before)])
    left = {id: ttl for id, (size, ttl) in desk.books().payloads.items() if size == len(large)}
    assert len(left) == 2
    assert all(0 < ttl <= 5_000 for ttl in left.values())


async def test_staging_stops_at_so_many_bytes_and_goes_on_when_asked_again(desk: Desk) -> None:
    """Records that are just small enough: 500 of them have two megabytes."""
    keys = [f"task {number}" for number in range(500)]
    await desk.add(*keys, call=b"c" * 4_000, due_ms=desk.later())
    desk.fall_due(*keys)
    moved: list[int] = []
    while sum(moved) < 500:
        moved.append((await desk.ledger.stage()).moved)
        assert 0 < moved[-1] <= 150
    books = desk.sound_books()
    assert not books.queue
    assert [entry.key for entry in books.streams["stream"].entries] == sorted(keys), "in the order of the queue"
