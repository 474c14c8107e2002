"""Limits: never more holders than slots, nobody forgotten in line, nothing left behind."""

from __future__ import annotations

import pytest

from docket.ledger import Delivery, SettleResult, requeue, reschedule

from .ledger_client import LedgerClient, completed

ACQUIRED, PARKED, LOST = 1, 2, 0


async def line_up(
    ledger_client: LedgerClient, worker: str, count: int, most: int = 1, prefix: str = "t"
) -> list[Delivery]:
    """That many tasks ask for a slot, in order; returns their runs."""
    keys = [f"{prefix}{n}" for n in range(count)]
    await ledger_client.add(*keys)
    runs = await ledger_client.take(worker)
    for run in runs:
        await ledger_client.acquire(run.key, run.epoch, [("L", most)])
    ledger_client.checked_state()
    return runs


async def take_turns(ledger_client: LedgerClient, worker: str, most: int = 1) -> list[str]:
    """Runs whoever is woken until nobody is; the keys in the order in which they got their slot."""
    turns: list[str] = []
    while runs := await ledger_client.take(worker):
        for run in runs:
            if await ledger_client.acquire(run.key, run.epoch, [("L", most)]) == ACQUIRED:
                turns.append(run.key)
                await ledger_client.settle(completed(run))
        ledger_client.checked_state()
    return turns


async def test_a_limit_is_never_exceeded_and_all_get_their_turn_in_order(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    runs = await line_up(ledger_client, worker, 8, most=2)
    stored_state = ledger_client.stored_state()
    assert len(stored_state.slots[b"L"]) == 2
    assert stored_state.lines[b"L"] == [f"t{n}" for n in range(2, 8)]
    await ledger_client.settle(completed(runs[0]), completed(runs[1]))
    assert await take_turns(ledger_client, worker, most=2) == [f"t{n}" for n in range(2, 8)]
    assert not ledger_client.checked_state().limits


async def test_a_newcomer_cannot_take_the_slot_of_one_who_was_woken(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    holder, _ = await line_up(ledger_client, worker, 2)
    await ledger_client.settle(completed(holder))
    (woken,) = await ledger_client.take(worker)
    newcomer = await ledger_client.start(worker, "newcomer")
    assert await ledger_client.acquire(newcomer.key, newcomer.epoch, [("L", 1)]) == PARKED
    assert await ledger_client.acquire(woken.key, woken.epoch, [("L", 1)]) == ACQUIRED
    ledger_client.checked_state()


async def test_acquiring_again_is_the_same_slot(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    for _ in range(2):
        assert await ledger_client.acquire("k", run.epoch, [("L", 1)]) == ACQUIRED
    assert len(ledger_client.checked_state().slots[b"L"]) == 1


async def test_one_who_waits_for_a_limit_keeps_the_slots_it_has(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("b", "ab", "a")
    b, ab, a = await ledger_client.take(worker)
    assert await ledger_client.acquire("b", b.epoch, [("B", 1)]) == ACQUIRED
    assert await ledger_client.acquire("ab", ab.epoch, [("B", 1), ("A", 1)]) == PARKED
    stored_state = ledger_client.checked_state()
    assert stored_state.slots[b"A"] == {b"wab"}
    assert stored_state.lines == {b"B": ["ab"]}
    assert await ledger_client.acquire("a", a.epoch, [("A", 1)]) == PARKED

    await ledger_client.settle(completed(b))
    (ab,) = await ledger_client.take(worker)
    assert await ledger_client.acquire("ab", ab.epoch, [("B", 1), ("A", 1)]) == ACQUIRED
    await ledger_client.settle(completed(ab))
    (a,) = await ledger_client.take(worker)
    assert await ledger_client.acquire("a", a.epoch, [("A", 1)]) == ACQUIRED
    await ledger_client.settle(completed(a))
    assert not ledger_client.checked_state().limits


async def test_those_who_need_the_same_limits_in_another_order_do_not_block_each_other(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    orders = [[("A", 1), ("B", 1), ("C", 1)], [("C", 1), ("A", 1)], [("B", 1), ("A", 1)], [("C", 1), ("B", 1)]]
    wanted = {f"{n}": limits for n, limits in enumerate(orders * 3)}
    await ledger_client.add(*wanted)
    done: list[str] = []
    while runs := await ledger_client.take(worker):
        # All ask before the first has done its work.
        asked = [(run, await ledger_client.acquire(run.key, run.epoch, wanted[run.key])) for run in runs]
        ledger_client.checked_state()
        started = [run for run, answer in asked if answer == ACQUIRED]
        await ledger_client.settle(*(completed(run) for run in started))
        done += [run.key for run in started]
    assert sorted(done) == sorted(wanted)
    assert not ledger_client.checked_state().limits


async def test_a_limit_that_was_asked_for_but_not_taken_leaves_nothing(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    a, b = await ledger_client.start(worker, "a"), await ledger_client.start(worker, "b")
    await ledger_client.acquire("a", a.epoch, [("A", 1)])
    assert await ledger_client.acquire("b", b.epoch, [("A", 1), ("customer 1", 5)]) == PARKED
    assert set(ledger_client.checked_state().limits) == {b"A"}
    await ledger_client.ledger.tasks.cancel("b")
    await ledger_client.settle(completed(a))
    assert not ledger_client.checked_state().limits


async def test_a_limit_of_none_lets_nobody_in_and_leaves_nothing(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    assert await ledger_client.acquire("k", run.epoch, [("L", 0)]) == PARKED
    assert await ledger_client.take(worker) == []
    await ledger_client.ledger.tasks.cancel("k")
    assert not ledger_client.checked_state().limits


async def test_a_lowered_limit_drains_down_without_an_error(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    holders = await line_up(ledger_client, worker, 3, most=3)
    new = await ledger_client.start(worker, "new")
    assert await ledger_client.acquire("new", new.epoch, [("L", 1)]) == PARKED
    for left, holder in ((2, holders[0]), (1, holders[1])):
        await ledger_client.settle(completed(holder))
        assert len(ledger_client.checked_state().slots[b"L"]) == left
        assert await ledger_client.take(worker) == []
    await ledger_client.settle(completed(holders[2]))
    assert await take_turns(ledger_client, worker) == ["new"]


async def test_a_raised_limit_lets_those_in_who_wait(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await line_up(ledger_client, worker, 4)
    new = await ledger_client.start(worker, "new")
    assert await ledger_client.acquire("new", new.epoch, [("L", 3)]) == PARKED
    assert [run.key for run in await ledger_client.take(worker)] == ["t1", "t2"]
    assert ledger_client.checked_state().lines[b"L"] == ["t3", "new"]


async def test_a_limit_raised_by_one_who_was_woken_lets_the_others_in_at_once(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    holder, *_ = await line_up(ledger_client, worker, 4)
    await ledger_client.settle(completed(holder))
    (woken,) = await ledger_client.take(worker)
    assert await ledger_client.acquire(woken.key, woken.epoch, [("L", 3)]) == ACQUIRED
    assert [run.key for run in await ledger_client.take(worker)] == ["t2", "t3"]
    ledger_client.checked_state()


async def test_a_limit_raised_beside_a_full_one_lets_those_in_who_wait_for_it(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await line_up(ledger_client, worker, 2)
    other = await ledger_client.start(worker, "other")
    await ledger_client.acquire("other", other.epoch, [("full", 1)])
    new = await ledger_client.start(worker, "new")
    assert await ledger_client.acquire("new", new.epoch, [("full", 1), ("L", 2)]) == PARKED
    assert [run.key for run in await ledger_client.take(worker)] == ["t1"]
    ledger_client.checked_state()


@pytest.mark.parametrize("lost_by", ["cancel", "replace", "replace while it runs", "retry", "requeue", "finish"])
async def test_a_slot_kept_for_one_who_was_woken_is_free_when_it_does_not_come(
    ledger_client: LedgerClient, lost_by: str
) -> None:
    worker = await ledger_client.hire()
    holder, *_ = await line_up(ledger_client, worker, 3)
    await ledger_client.settle(completed(holder))
    assert ledger_client.stored_state().slots == {b"L": {b"wt1"}}

    if lost_by == "cancel":
        await ledger_client.ledger.tasks.cancel("t1")
    elif lost_by == "replace":
        await ledger_client.add("t1", replace=True)
    else:
        (woken,) = await ledger_client.take(worker)
        if lost_by == "replace while it runs":
            await ledger_client.add("t1", replace=True)
        elif lost_by == "retry":
            await ledger_client.settle(reschedule("t1", woken.epoch, attempt=2, delay_ms=60_000))
        elif lost_by == "requeue":
            await ledger_client.settle(requeue("t1", woken.epoch))
        else:
            await ledger_client.settle(completed(woken))
    stored_state = ledger_client.checked_state()
    assert stored_state.slots == {b"L": {b"wt2"}}
    assert not stored_state.lines


async def test_a_slot_kept_for_one_who_was_woken_survives_the_loss_of_its_worker(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    holder, *_ = await line_up(ledger_client, worker, 3)
    await ledger_client.settle(completed(holder))
    other = await ledger_client.hire()
    await ledger_client.take(other)
    ledger_client.bury(other)
    stored_state = ledger_client.checked_state()
    assert stored_state.slots == {b"L": {b"wt1"}}
    assert stored_state.lines == {b"L": ["t2"]}
    assert await take_turns(ledger_client, worker) == ["t1", "t2"]


async def test_a_slot_kept_for_a_task_that_is_buried_is_free(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    holder, *_ = await line_up(ledger_client, worker, 3)
    await ledger_client.settle(completed(holder))
    for _ in range(3):
        killed = await ledger_client.hire()
        assert [run.key for run in await ledger_client.take(killed)] == ["t1"]
        ledger_client.bury(killed)
    stored_state = ledger_client.checked_state()
    assert stored_state.dead == {"t1"}
    assert stored_state.slots == {b"L": {b"wt2"}}


async def test_the_slot_of_a_dead_worker_goes_to_the_next_in_line(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("holder")
    (holder,) = await ledger_client.take(other)
    await ledger_client.acquire("holder", holder.epoch, [("L", 1)])
    waiting = await ledger_client.start(worker, "waiting")
    assert await ledger_client.acquire("waiting", waiting.epoch, [("L", 1)]) == PARKED
    ledger_client.bury(other)
    stored_state = ledger_client.checked_state()
    assert stored_state.slots == {b"L": {b"wwaiting"}}
    assert await take_turns(ledger_client, worker) == ["waiting", "holder"]


async def test_a_replaced_run_keeps_its_slot_until_its_body_has_ended(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    old = await ledger_client.start(worker, "k")
    await ledger_client.acquire("k", old.epoch, [("L", 1)])
    await ledger_client.add("k", replace=True)
    (new,) = await ledger_client.take(worker)
    assert await ledger_client.acquire("k", new.epoch, [("L", 1)]) == PARKED
    ledger_client.checked_state()
    assert await ledger_client.settle(completed(old)) == [SettleResult.LOST]
    stored_state = ledger_client.checked_state()
    assert not stored_state.replaced_runs
    assert await take_turns(ledger_client, worker) == ["k"]


@pytest.mark.parametrize("way", ["dies", "leaves"])
async def test_a_replaced_run_gives_its_slot_up_when_its_worker_is_gone(ledger_client: LedgerClient, way: str) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    old = await ledger_client.start(worker, "k")
    await ledger_client.acquire("k", old.epoch, [("L", 1)])
    await ledger_client.add("k", replace=True, due_ms=ledger_client.later())
    assert set(ledger_client.checked_state().replaced_runs) == {old.epoch}
    if way == "dies":
        ledger_client.bury(worker)
    else:
        await ledger_client.ledger.fleet.leave(worker)
    stored_state = ledger_client.checked_state()
    assert not stored_state.replaced_runs
    assert not stored_state.limits
    assert await ledger_client.take(other) == []


async def test_a_run_of_a_dead_worker_that_a_lost_group_hid_gives_its_slot_up_when_replaced(
    ledger_client: LedgerClient,
) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    old = await ledger_client.start(worker, "k")
    await ledger_client.acquire("k", old.epoch, [("L", 1)])
    ledger_client.client.xgroup_destroy(ledger_client.ledger.keys.stream, "docket-workers")
    ledger_client.bury(worker)
    assert ledger_client.stored_state().running["k"].worker == worker
    await ledger_client.add("k", replace=True)
    stored_state = ledger_client.checked_state()
    assert not stored_state.replaced_runs
    assert not stored_state.slots
    assert await take_turns(ledger_client, other) == ["k"]


async def test_a_run_of_a_dead_worker_that_a_lost_group_hid_gives_its_slot_up_when_mended(
    ledger_client: LedgerClient,
) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    old = await ledger_client.start(worker, "k")
    await ledger_client.acquire("k", old.epoch, [("L", 1)])
    ledger_client.client.xgroup_destroy(ledger_client.ledger.keys.stream, "docket-workers")
    ledger_client.bury(worker)
    assert ledger_client.sweep() == 1
    stored_state = ledger_client.checked_state()
    assert not stored_state.replaced_runs
    assert not stored_state.slots
    assert await take_turns(ledger_client, other) == ["k"]


async def test_the_census_counts_limits_and_slots(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await line_up(ledger_client, worker, 5, most=2)
    census = await ledger_client.ledger.queries.census(with_slots=True)
    assert (census.limits, census.slots, census.parked, census.running) == (1, 2, 3, 2)


async def test_a_woken_task_takes_its_slot_although_the_note_about_it_is_damaged(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    first, _ = await line_up(ledger_client, worker, 2, most=1)
    await ledger_client.settle(completed(first))
    ledger_client.client.hset(ledger_client.ledger.keys.key("parked"), "t1", "not a limit")
    (woken,) = await ledger_client.take(worker)
    assert await ledger_client.acquire(woken.key, woken.epoch, [("L", 1)]) == ACQUIRED
    await ledger_client.settle(completed(woken))
    assert not ledger_client.stored_state().slots
