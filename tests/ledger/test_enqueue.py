"""`add` and `replace`: what is written down, once, and what the caller is told."""

from __future__ import annotations

from docket.ledger import ProgressChange, SettleResult, Unwritten
from docket.model.states import ExecutionState
from tests.payloads import decode_call, encode_call

from .ledger_client import LedgerClient, completed, new_task

SCHEDULED, QUEUED = ExecutionState.SCHEDULED, ExecutionState.QUEUED


def call(number: int) -> bytes:
    return encode_call((number,), {})


def number_of(record_call: bytes) -> int:
    return decode_call(record_call)[0][0]


async def number_waiting(ledger_client: LedgerClient, key: str) -> int:
    look = await ledger_client.ledger.tasks.get(key)
    assert look.task is not None
    return number_of(look.task.call)


async def test_a_new_task_is_scheduled_at_generation_one(ledger_client: LedgerClient) -> None:
    now, later = ledger_client.now(), ledger_client.later()
    (ready,) = await ledger_client.add("ready")
    (waiting,) = await ledger_client.add("waiting", due_ms=later)
    (overdue,) = await ledger_client.add("overdue", due_ms=now - 5000)
    assert (ready.scheduled, ready.generation, ready.state) == (True, 1, QUEUED)
    assert (waiting.scheduled, waiting.generation, waiting.state) == (True, 1, SCHEDULED)
    assert (overdue.scheduled, overdue.state) == (True, QUEUED)
    assert ready.due_ms >= now
    assert waiting.due_ms == later
    assert overdue.due_ms == now - 5000
    ledger_client.checked_state()


async def test_adding_a_known_key_changes_nothing_and_says_so(ledger_client: LedgerClient) -> None:
    worker, later = await ledger_client.hire(), ledger_client.later()
    await ledger_client.add("ready", call=call(1))
    await ledger_client.add("waiting", call=call(1), due_ms=later)
    before = ledger_client.stored_state()

    for key, state, options in (("ready", QUEUED, {"due_ms": later}), ("waiting", SCHEDULED, {})):
        (result,) = await ledger_client.add(key, call=call(2), **options)
        assert (result.scheduled, result.generation, result.state) == (False, 1, state)
    assert ledger_client.stored_state() == before

    (run,) = await ledger_client.take(worker)
    assert [r.scheduled for r in await ledger_client.add("ready", call=call(2))] == [False]
    await ledger_client.settle(completed(run))
    assert [r.scheduled for r in await ledger_client.add("ready", call=call(3))] == [True]
    assert await number_waiting(ledger_client, "ready") == 3
    assert "ready" not in ledger_client.checked_state().finished


async def test_each_replacement_is_a_new_generation(ledger_client: LedgerClient) -> None:
    later = ledger_client.later()
    (first,) = await ledger_client.add("k", call=call(0))
    generations = [first.generation]
    for number, due in ((1, later), (2, 0), (3, later), (4, later + 1)):
        (result,) = await ledger_client.add("k", call=call(number), due_ms=due, replace=True)
        assert result.scheduled
        assert result.state is (SCHEDULED if due else QUEUED)
        generations.append(result.generation)
        assert await number_waiting(ledger_client, "k") == number
        ledger_client.checked_state()
    assert generations == [1, 2, 3, 4, 5]
    assert ledger_client.stored_state().schedule == {"k": later + 1}


async def test_replace_of_an_unknown_key_is_an_add(ledger_client: LedgerClient) -> None:
    (result,) = await ledger_client.add("k", replace=True)
    assert (result.scheduled, result.generation) == (True, 1)


async def test_of_one_key_in_a_batch_the_first_add_wins(ledger_client: LedgerClient) -> None:
    results = await ledger_client.ledger.tasks.enqueue([new_task("k", call(n)) for n in range(5)])
    assert [r.scheduled for r in results] == [True, False, False, False, False]
    assert {r.generation for r in results} == {1}
    assert await number_waiting(ledger_client, "k") == 0
    assert len(ledger_client.checked_state().entries) == 1


async def test_of_one_key_in_a_batch_the_last_replace_wins(ledger_client: LedgerClient) -> None:
    later = ledger_client.later()
    results = await ledger_client.ledger.tasks.enqueue(
        [new_task("k", call(n), replace=True, due_ms=later if n % 2 else 0) for n in range(6)]
    )
    assert [(r.scheduled, r.generation) for r in results] == [(True, n) for n in range(1, 7)]
    assert await number_waiting(ledger_client, "k") == 5
    assert list(ledger_client.checked_state().schedule) == ["k"]


async def test_adds_and_replacements_of_a_key_in_one_batch_happen_in_order(ledger_client: LedgerClient) -> None:
    results = await ledger_client.ledger.tasks.enqueue(
        [
            new_task("k", call(0), fresh=True),
            new_task("k", call(1)),
            new_task("k", call(2), replace=True),
            new_task("other", call(9)),
            new_task("k", call(3), fresh=True),
        ]
    )
    assert [(r.scheduled, r.generation) for r in results] == [(True, 1), (False, 1), (True, 2), (True, 1), (False, 2)]
    assert await number_waiting(ledger_client, "k") == 2
    ledger_client.checked_state()


async def test_a_whole_batch_is_delivered_in_its_order(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    keys = [f"k{i}" for i in range(500)]
    await ledger_client.add(*keys, fresh=True)
    assert [run.key for run in await ledger_client.take(worker, 500)] == keys


async def test_an_empty_batch_is_no_error(ledger_client: LedgerClient) -> None:
    assert await ledger_client.ledger.tasks.enqueue([]) == []
    assert await ledger_client.settle() == []


async def test_a_replaced_task_that_was_delivered_but_not_claimed_starts_once_with_the_new_call(
    ledger_client: LedgerClient,
) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("k", call=call(1))
    entries = ledger_client.read(worker)
    await ledger_client.add("k", call=call(2), replace=True)
    ledger_client.checked_state()

    assert await ledger_client.claim(worker, entries) == []
    (run,) = await ledger_client.take(other)
    assert ledger_client.stored_state().tasks["k"].generation == 2
    assert await number_waiting(ledger_client, "k") == 2
    assert await ledger_client.settle(completed(run)) == [SettleResult.DONE]
    assert not ledger_client.checked_state().entries


async def test_a_task_replaced_while_it_runs_voids_the_run(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    old = await ledger_client.start(worker, "k", call=call(1))
    await ledger_client.ledger.tasks.progress([ProgressChange(old.key, old.epoch, add=1)])
    await ledger_client.add("k", call=call(2), replace=True)
    stored_state = ledger_client.checked_state()
    assert not stored_state.running
    assert not stored_state.progress

    assert await ledger_client.settle(completed(old)) == [SettleResult.LOST]
    assert await ledger_client.ledger.tasks.progress([ProgressChange(old.key, old.epoch, add=1)]) == [Unwritten.LOST]
    assert await ledger_client.acquire(old.key, old.epoch, [("L", 1)]) == 0
    (new,) = await ledger_client.take(worker)
    assert new.epoch > old.epoch
    assert await number_waiting(ledger_client, "k") == 2
    assert await ledger_client.settle(completed(old)) == [SettleResult.LOST]
    assert await ledger_client.settle(completed(new)) == [SettleResult.DONE]
    ledger_client.checked_state()


async def test_a_task_replaced_while_it_runs_and_scheduled_for_later_waits_for_its_time(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    old = await ledger_client.start(worker, "k")
    await ledger_client.add("k", replace=True, due_ms=ledger_client.later())
    assert await ledger_client.take(worker) == []
    assert await ledger_client.settle(completed(old)) == [SettleResult.LOST]
    assert list(ledger_client.checked_state().schedule) == ["k"]


async def test_a_task_replaced_while_it_is_parked_leaves_the_line(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    holder = await ledger_client.start(worker, "holder")
    parked = await ledger_client.start(worker, "parked", call=call(1))
    await ledger_client.acquire(holder.key, holder.epoch, [("L", 1)])
    assert await ledger_client.acquire(parked.key, parked.epoch, [("L", 1)]) == 2

    await ledger_client.add("parked", call=call(2), replace=True)
    stored_state = ledger_client.checked_state()
    assert not stored_state.lines
    assert not stored_state.parked
    (again,) = await ledger_client.take(worker)
    assert await number_waiting(ledger_client, again.key) == 2


async def test_a_batch_that_wakes_a_task_and_then_replaces_it_leaves_one_of_it(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    holder, woken = await ledger_client.start(worker, "holder"), await ledger_client.start(worker, "woken")
    parked = await ledger_client.start(worker, "parked", call=call(1))
    await ledger_client.acquire(holder.key, holder.epoch, [("L", 1)])
    for run in (woken, parked):
        assert await ledger_client.acquire(run.key, run.epoch, [("L", 1)]) == 2
    await ledger_client.settle(completed(holder))

    # The first gives its reserved slot up, which wakes the second.
    await ledger_client.ledger.tasks.enqueue(
        [new_task("woken", replace=True), new_task("parked", call(2), replace=True), new_task("parked", call(3))]
    )
    stored_state = ledger_client.checked_state()
    assert [entry.key for entry in stored_state.entries] == ["woken", "parked"]
    assert not stored_state.slots
    assert await number_waiting(ledger_client, "parked") == 2


async def test_unfinished_work_has_no_time_to_live_and_finished_work_always_has_one(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("waits", due_ms=ledger_client.later())
    await ledger_client.add("completed", "cancelled", "runs", "ready")
    await ledger_client.ledger.tasks.cancel("cancelled")
    done, _ = await ledger_client.take(worker, 2)
    await ledger_client.settle(completed(done, ttl_ms=60_000))
    stored_state = ledger_client.checked_state()
    assert not stored_state.expiring
    assert set(stored_state.tasks) == {"waits", "runs", "ready"}
    assert 0 < stored_state.finished_ttl["completed"] <= 60_000
    assert 60_000 < stored_state.finished_ttl["cancelled"] <= ledger_client.ledger.ttl_ms


async def test_a_docket_that_keeps_no_records_leaves_none(ledger_client: LedgerClient) -> None:
    ledger_client.ledger.ttl_ms = 0
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "done")
    await ledger_client.settle(completed(run, ttl_ms=0))
    await ledger_client.add("cancelled")
    await ledger_client.ledger.tasks.cancel("cancelled")
    for _ in range(3):
        await ledger_client.add("lost")
        worker = await ledger_client.hire()
        await ledger_client.take(worker)
        ledger_client.bury(worker)
    stored_state = ledger_client.checked_state()
    assert not stored_state.finished
    assert not stored_state.tasks
    assert stored_state.dead == {"lost"}
