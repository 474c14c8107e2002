"""Limits: never more holders than slots, nobody forgotten in line, nothing left behind."""

from __future__ import annotations

import pytest

from docket.ledger import Answer, Delivery, hand_back, reschedule

from .desk import Desk, completed

ACQUIRED, PARKED, LOST = 1, 2, 0


async def line_up(desk: Desk, worker: str, count: int, most: int = 1, prefix: str = "t") -> list[Delivery]:
    """That many tasks ask for a slot, in order; returns their runs."""
    keys = [f"{prefix}{n}" for n in range(count)]
    await desk.add(*keys)
    runs = await desk.take(worker)
    for run in runs:
        await desk.acquire(run.key, run.epoch, [("L", most)])
    desk.sound_books()
    return runs


async def take_turns(desk: Desk, worker: str, most: int = 1) -> list[str]:
    """Runs whoever is woken until nobody is; the keys in the order in which they got their slot."""
    turns: list[str] = []
    while runs := await desk.take(worker):
        for run in runs:
            if await desk.acquire(run.key, run.epoch, [("L", most)]) == ACQUIRED:
                turns.append(run.key)
                await desk.settle(completed(run))
        desk.sound_books()
    return turns


async def test_a_limit_is_never_exceeded_and_all_get_their_turn_in_order(desk: Desk) -> None:
    worker = await desk.hire()
    runs = await line_up(desk, worker, 8, most=2)
    books = desk.books()
    assert len(books.slots[b"L"]) == 2
    assert books.lines[b"L"] == [f"t{n}" for n in range(2, 8)]
    await desk.settle(completed(runs[0]), completed(runs[1]))
    assert await take_turns(desk, worker, most=2) == [f"t{n}" for n in range(2, 8)]
    assert not desk.sound_books().limits


async def test_a_newcomer_cannot_take_the_slot_of_one_who_was_woken(desk: Desk) -> None:
    worker = await desk.hire()
    holder, _ = await line_up(desk, worker, 2)
    await desk.settle(completed(holder))
    (woken,) = await desk.take(worker)
    newcomer = await desk.start(worker, "newcomer")
    assert await desk.acquire(newcomer.key, newcomer.epoch, [("L", 1)]) == PARKED
    assert await desk.acquire(woken.key, woken.epoch, [("L", 1)]) == ACQUIRED
    desk.sound_books()


async def test_acquiring_again_is_the_same_slot(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    for _ in range(2):
        assert await desk.acquire("k", run.epoch, [("L", 1)]) == ACQUIRED
    assert len(desk.sound_books().slots[b"L"]) == 1


async def test_one_who_waits_for_a_limit_keeps_the_slots_it_has(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("b", "ab", "a")
    b, ab, a = await desk.take(worker)
    assert await desk.acquire("b", b.epoch, [("B", 1)]) == ACQUIRED
    assert await desk.acquire("ab", ab.epoch, [("B", 1), ("A", 1)]) == PARKED
    books = desk.sound_books()
    assert books.slots[b"A"] == {b"wab"}
    assert books.lines == {b"B": ["ab"]}
    assert await desk.acquire("a", a.epoch, [("A", 1)]) == PARKED

    await desk.settle(completed(b))
    (ab,) = await desk.take(worker)
    assert await desk.acquire("ab", ab.epoch, [("B", 1), ("A", 1)]) == ACQUIRED
    await desk.settle(completed(ab))
    (a,) = await desk.take(worker)
    assert await desk.acquire("a", a.epoch, [("A", 1)]) == ACQUIRED
    await desk.settle(completed(a))
    assert not desk.sound_books().limits


async def test_those_who_need_the_same_limits_in_another_order_do_not_block_each_other(desk: Desk) -> None:
    worker = await desk.hire()
    orders = [[("A", 1), ("B", 1), ("C", 1)], [("C", 1), ("A", 1)], [("B", 1), ("A", 1)], [("C", 1), ("B", 1)]]
    wanted = {f"{n}": limits for n, limits in enumerate(orders * 3)}
    await desk.add(*wanted)
    done: list[str] = []
    while runs := await desk.take(worker):
        # All ask before the first has done its work.
        asked = [(run, await desk.acquire(run.key, run.epoch, wanted[run.key])) for run in runs]
        desk.sound_books()
        started = [run for run, answer in asked if answer == ACQUIRED]
        await desk.settle(*(completed(run) for run in started))
        done += [run.key for run in started]
    assert sorted(done) == sorted(wanted)
    assert not desk.sound_books().limits


async def test_a_limit_that_was_asked_for_but_not_taken_leaves_nothing(desk: Desk) -> None:
    worker = await desk.hire()
    a, b = await desk.start(worker, "a"), await desk.start(worker, "b")
    await desk.acquire("a", a.epoch, [("A", 1)])
    assert await desk.acquire("b", b.epoch, [("A", 1), ("customer 1", 5)]) == PARKED
    assert set(desk.sound_books().limits) == {b"A"}
    await desk.ledger.cancel("b")
    await desk.settle(completed(a))
    assert not desk.sound_books().limits


async def test_a_limit_of_none_lets_nobody_in_and_leaves_nothing(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    assert await desk.acquire("k", run.epoch, [("L", 0)]) == PARKED
    assert await desk.take(worker) == []
    await desk.ledger.cancel("k")
    assert not desk.sound_books().limits


async def test_a_lowered_limit_drains_down_without_an_error(desk: Desk) -> None:
    worker = await desk.hire()
    holders = await line_up(desk, worker, 3, most=3)
    new = await desk.start(worker, "new")
    assert await desk.acquire("new", new.epoch, [("L", 1)]) == PARKED
    for left, holder in ((2, holders[0]), (1, holders[1])):
        await desk.settle(completed(holder))
        assert len(desk.sound_books().slots[b"L"]) == left
        assert await desk.take(worker) == []
    await desk.settle(completed(holders[2]))
    assert await take_turns(desk, worker) == ["new"]


async def test_a_raised_limit_lets_those_in_who_wait(desk: Desk) -> None:
    worker = await desk.hire()
    await line_up(desk, worker, 4)
    new = await desk.start(worker, "new")
    assert await desk.acquire("new", new.epoch, [("L", 3)]) == PARKED
    assert [run.key for run in await desk.take(worker)] == ["t1", "t2"]
    assert desk.sound_books().lines[b"L"] == ["t3", "new"]


async def test_a_limit_raised_by_one_who_was_woken_lets_the_others_in_at_once(desk: Desk) -> None:
    worker = await desk.hire()
    holder, *_ = await line_up(desk, worker, 4)
    await desk.settle(completed(holder))
    (woken,) = await desk.take(worker)
    assert await desk.acquire(woken.key, woken.epoch, [("L", 3)]) == ACQUIRED
    assert [run.key for run in await desk.take(worker)] == ["t2", "t3"]
    desk.sound_books()


async def test_a_limit_raised_beside_a_full_one_lets_those_in_who_wait_for_it(desk: Desk) -> None:
    worker = await desk.hire()
    await line_up(desk, worker, 2)
    other = await desk.start(worker, "other")
    await desk.acquire("other", other.epoch, [("full", 1)])
    new = await desk.start(worker, "new")
    assert await desk.acquire("new", new.epoch, [("full", 1), ("L", 2)]) == PARKED
    assert [run.key for run in await desk.take(worker)] == ["t1"]
    desk.sound_books()


@pytest.mark.parametrize("lost_by", ["cancel", "replace", "replace while it runs", "retry", "hand back", "finish"])
async def test_a_slot_kept_for_one_who_was_woken_is_free_when_it_does_not_come(desk: Desk, lost_by: str) -> None:
    worker = await desk.hire()
    holder, *_ = await line_up(desk, worker, 3)
    await desk.settle(completed(holder))
    assert desk.books().slots == {b"L": {b"wt1"}}

    if lost_by == "cancel":
        await desk.ledger.cancel("t1")
    elif lost_by == "replace":
        await desk.add("t1", replace=True)
    else:
        (woken,) = await desk.take(worker)
        if lost_by == "replace while it runs":
            await desk.add("t1", replace=True)
        elif lost_by == "retry":
            await desk.settle(reschedule("t1", woken.epoch, attempt=2, delay_ms=60_000))
        elif lost_by == "hand back":
            await desk.settle(hand_back("t1", woken.epoch))
        else:
            await desk.settle(completed(woken))
    books = desk.sound_books()
    assert books.slots == {b"L": {b"wt2"}}
    assert not books.lines


async def test_a_slot_kept_for_one_who_was_woken_survives_the_loss_of_its_worker(desk: Desk) -> None:
    worker = await desk.hire()
    holder, *_ = await line_up(desk, worker, 3)
    await desk.settle(completed(holder))
    other = await desk.hire()
    await desk.take(other)
    desk.bury(other)
    books = desk.sound_books()
    assert books.slots == {b"L": {b"wt1"}}
    assert books.lines == {b"L": ["t2"]}
    assert await take_turns(desk, worker) == ["t1", "t2"]


async def test_a_slot_kept_for_a_task_that_is_buried_is_free(desk: Desk) -> None:
    worker = await desk.hire()
    holder, *_ = await line_up(desk, worker, 3)
    await desk.settle(completed(holder))
    for _ in range(3):
        killed = await desk.hire()
        assert [run.key for run in await desk.take(killed)] == ["t1"]
        desk.bury(killed)
    books = desk.sound_books()
    assert books.dead == {"t1"}
    assert books.slots == {b"L": {b"wt2"}}


async def test_the_slot_of_a_dead_worker_goes_to_the_next_in_line(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    await desk.add("holder")
    (holder,) = await desk.take(other)
    await desk.acquire("holder", holder.epoch, [("L", 1)])
    waiting = await desk.start(worker, "waiting")
    assert await desk.acquire("waiting", waiting.epoch, [("L", 1)]) == PARKED
    desk.bury(other)
    books = desk.sound_books()
    assert books.slots == {b"L": {b"wwaiting"}}
    assert await take_turns(desk, worker) == ["waiting", "holder"]


async def test_a_replaced_run_keeps_its_slot_until_its_body_has_ended(desk: Desk) -> None:
    worker = await desk.hire()
    old = await desk.start(worker, "k")
    await desk.acquire("k", old.epoch, [("L", 1)])
    await desk.add("k", replace=True)
    (new,) = await desk.take(worker)
    assert await desk.acquire("k", new.epoch, [("L", 1)]) == PARKED
    desk.sound_books()
    assert await desk.settle(completed(old)) == [Answer.LOST]
    books = desk.sound_books()
    assert not books.ghosts
    assert await take_turns(desk, worker) == ["k"]


@pytest.mark.parametrize("way", ["dies", "leaves"])
async def test_a_replaced_run_gives_its_slot_up_when_its_worker_is_gone(desk: Desk, way: str) -> None:
    worker, other = await desk.hire(), await desk.hire()
    old = await desk.start(worker, "k")
    await desk.acquire("k", old.epoch, [("L", 1)])
    await desk.add("k", replace=True, due_ms=desk.later())
    assert set(desk.sound_books().ghosts) == {old.epoch}
    if way == "dies":
        desk.bury(worker)
    else:
        await desk.ledger.leave(worker)
    books = desk.sound_books()
    assert not books.ghosts
    assert not books.limits
    assert await desk.take(other) == []


async def test_a_run_of_a_dead_worker_that_a_lost_group_hid_gives_its_slot_up_when_replaced(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    old = await desk.start(worker, "k")
    await desk.acquire("k", old.epoch, [("L", 1)])
    desk.client.xgroup_destroy(desk.ledger.keys.stream, "docket-workers")
    desk.bury(worker)
    assert desk.books().running["k"].worker == worker
    await desk.add("k", replace=True)
    books = desk.sound_books()
    assert not books.ghosts
    assert not books.slots
    assert await take_turns(desk, other) == ["k"]


async def test_a_run_of_a_dead_worker_that_a_lost_group_hid_gives_its_slot_up_when_mended(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    old = await desk.start(worker, "k")
    await desk.acquire("k", old.epoch, [("L", 1)])
    desk.client.xgroup_destroy(desk.ledger.keys.stream, "docket-workers")
    desk.bury(worker)
    assert desk.sweep() == 1
    books = desk.sound_books()
    assert not books.ghosts
    assert not books.slots
    assert await take_turns(desk, other) == ["k"]


async def test_the_census_counts_limits_and_slots(desk: Desk) -> None:
    worker = await desk.hire()
    await line_up(desk, worker, 5, most=2)
    census = await desk.ledger.census()
    assert (census.limits_in_use, census.slots_in_use, census.parked, census.running) == (1, 2, 3, 2)
