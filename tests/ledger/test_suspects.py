"""Tasks that lose their workers: which of them are buried, and how the others get through."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import pytest

from docket.codec import decode_error
from docket.codec.packing import unpack_from_script
from docket.errors import WorkerLost
from docket.ledger import Delivery, Entry, KeptSlot, SuspectNotes, hand_back, reschedule
from docket.ledger.endings import read_ending
from docket.model.states import ExecutionState
from docket.storage.keys import bytes_text, text_bytes
from docket.storage.records import read_task

from .desk import LEASE_MS, Desk, completed, new_ledger


async def lose(desk: Desk, *keys: str) -> None:
    """A worker takes all there is and dies; these must have been among it."""
    worker = await desk.hire()
    assert set(keys) <= {run.key for run in await desk.take(worker)}
    desk.bury(worker)


async def lose_twice(desk: Desk, *keys: str) -> None:
    """The tasks are a group of suspects from now on."""
    await desk.add(*keys)
    await lose(desk, *keys)
    await lose(desk, *keys)


async def take(desk: Desk, worker: str, count: int = 100) -> tuple[list[str], SuspectNotes]:
    notes = SuspectNotes()
    deliveries = await desk.ledger.take(worker, '"w"', count, None, notes)
    assert deliveries is not None
    await desk.isolate(worker, deliveries, notes)
    return [run.key for run in deliveries], notes


async def keys_of(desk: Desk, worker: str, count: int = 100) -> list[str]:
    return (await take(desk, worker, count))[0]


def let_them_wait(desk: Desk, *keys: str) -> None:
    """As if busy workers had met these suspects more than a second ago."""
    for key in keys:
        assert desk.client.hset(desk.ledger.keys.key("suspects"), b"m" + text_bytes(key), "1") == 0


async def bring_back(desk: Desk, *keys: str) -> None:
    """What was put off comes back from the schedule."""
    desk.fall_due(*keys)
    await desk.ledger.stage()


async def reserve(desk: Desk, worker: str, key: str) -> Entry:
    """The busy worker meets the single suspect for so long that it reserves it."""
    assert await keys_of(desk, worker) == []
    let_them_wait(desk, key)
    await bring_back(desk, key)
    keys, notes = await take(desk, worker)
    assert (keys, notes.alone) == ([], None)
    assert notes.reserved is not None
    assert notes.reserved.key == text_bytes(key)
    return notes.reserved


# Who is buried


async def test_a_task_that_lost_three_workers_alone_has_failed_and_is_kept_as_a_dead_letter(desk: Desk) -> None:
    await desk.add("poison")
    for losses in (1, 2):
        await lose(desk, "poison")
        assert desk.sound_books().tasks["poison"].losses == losses
    worker = await desk.hire()
    (run,) = await desk.take(worker)
    desk.end_lease(worker)
    assert desk.reclaim() == [1, 0, 1, 0, 0]

    books = desk.sound_books()
    assert not books.tasks
    assert not books.suspects
    assert books.dead == {"poison"}
    finished = books.finished["poison"]
    assert finished.state is ExecutionState.FAILED
    assert (finished.epoch, finished.task.losses) == (run.epoch, 3)
    ending = read_ending(finished.tail)
    assert ending.error is not None
    assert ending.error.startswith("WorkerLost")
    assert "losses so far: 3;" in ending.error
    error = decode_error(ending.payload)
    assert isinstance(error, WorkerLost)
    assert "losses so far: 3;" in str(error)


async def test_a_dead_letter_can_be_added_again_and_starts_with_a_clean_slate(desk: Desk) -> None:
    await desk.add("poison")
    for _ in range(3):
        await lose(desk, "poison")
    (receipt,) = await desk.add("poison")
    assert receipt.scheduled
    books = desk.sound_books()
    assert books.tasks["poison"].losses == 0
    assert books.dead == {"poison"}


async def test_a_finished_attempt_wipes_the_slate(desk: Desk) -> None:
    await lose_twice(desk, "k")
    worker = await desk.hire()
    (run,) = await desk.take(worker)
    await desk.settle(completed(run))
    await desk.add("k")
    await lose(desk, "k")
    assert desk.sound_books().tasks["k"].losses == 1


async def test_tasks_that_are_lost_together_are_never_buried(desk: Desk) -> None:
    """However often their machine dies: each time a worker has more than one of them."""
    keys = [f"k{n}" for n in range(64)]
    await desk.add(*keys)
    for _ in range(6):
        desk.bury(await _busy(desk))
        assert not desk.sound_books().dead
    assert set(desk.books().tasks) == set(keys)


async def _busy(desk: Desk) -> str:
    worker = await desk.hire()
    assert len(await desk.take(worker)) > 1
    return worker


@pytest.mark.parametrize("deliveries", [150, 100, 101, 20, 21])
async def test_the_last_of_many_that_are_recovered_in_steps_was_not_alone(desk: Desk, deliveries: int) -> None:
    """Where two losses bury a task, the books say whether it was the only run."""
    strict = Desk(new_ledger(desk.ledger.server, max_losses=2), desk.client)
    await desk.add("lost once")
    await lose(desk, "lost once")
    worker = await desk.hire()
    await desk.add(*(f"neighbour {n}" for n in range(deliveries - 1)))
    await desk.take(worker, 500)
    # The task was put on `front`, which is recovered last.
    desk.end_lease(worker)
    answers = [strict.reclaim()]
    while answers[-1][4]:
        strict.sound_books()
        answers.append(strict.reclaim())
    assert sum(answer[2] for answer in answers) == 0
    books = strict.sound_books()
    assert not books.dead
    assert books.tasks["lost once"].losses == 2
    assert {task.losses for key, task in books.tasks.items() if key != "lost once"} <= {1}


async def test_deliveries_that_were_not_claimed_are_no_neighbours(desk: Desk) -> None:
    await lose_twice(desk, "poison")
    worker = await desk.hire()
    assert await keys_of(desk, worker) == ["poison"]
    await desk.add("read", "read too")
    desk.read(worker)
    desk.end_lease(worker)
    assert desk.reclaim() == [1, 2, 1, 0, 0]
    books = desk.sound_books()
    assert books.dead == {"poison"}
    assert {task.losses for task in books.tasks.values()} == {0}


# How many losses it takes


async def test_one_loss_alone_is_enough_if_the_docket_says_so(desk: Desk) -> None:
    strict = Desk(new_ledger(desk.ledger.server, max_losses=1), desk.client)
    await desk.add("a", "b")
    worker = await desk.hire()
    await desk.take(worker)
    strict.bury(worker)
    assert not strict.sound_books().dead, "neither was alone"
    worker = await desk.hire()
    await desk.take(worker, 1)
    strict.bury(worker)
    books = strict.sound_books()
    assert len(books.dead) == 1
    (finished,) = books.finished.values()
    assert "losses so far: 2;" in (read_ending(finished.tail).error or "")


@pytest.mark.parametrize("most", [1, 5, 12])
async def test_a_task_may_say_how_many_losses_bury_it(desk: Desk, most: int) -> None:
    worker = await desk.hire()
    await desk.ledger.register(worker, LEASE_MS, ["f"], {"f": most})
    await desk.add("k")
    for _ in range(most - 1):
        await lose_with(desk, worker)
        assert "k" in desk.sound_books().tasks
        worker = await desk.hire_with({"f": most})
    await lose_with(desk, worker)
    books = desk.sound_books()
    assert books.dead == {"k"}
    assert f"losses so far: {most};" in (read_ending(books.finished["k"].tail).error or "")


async def lose_with(desk: Desk, worker: str) -> None:
    assert len(await desk.take(worker)) == 1
    desk.bury(worker)


async def test_a_deploy_that_no_longer_declares_a_number_takes_the_dockets(desk: Desk) -> None:
    worker = await desk.hire_with({"f": 1})
    assert desk.sound_books().max_losses == {"f": 1}
    other = await desk.hire("g")
    assert desk.sound_books().max_losses == {"f": 1}, "it knows nothing of that function"
    await desk.hire("f")
    assert desk.sound_books().max_losses == {}
    await desk.ledger.leave(worker)
    await desk.ledger.leave(other)
    await desk.add("k")
    await lose(desk, "k")
    assert "k" in desk.sound_books().tasks


# Told to stop


@pytest.mark.parametrize("how", ["killed while it stops", "leaves without waiting"])
async def test_a_worker_that_was_told_to_stop_does_not_count(desk: Desk, how: str) -> None:
    await desk.add("k")
    for _ in range(5):
        worker = await desk.hire()
        (run,) = await desk.take(worker)
        assert read_task(run.record).losses == 0
        if how == "killed while it stops":
            assert not desk.renew(worker, stopping=True).lost
            assert desk.sound_books().stopping == {worker}
            desk.bury(worker)
        else:
            assert await desk.ledger.leave(worker) is True
            desk.sound_books()
            desk.reclaim()
        books = desk.sound_books()
        assert (books.tasks["k"].losses, books.tasks["k"].redelivered) == (0, True)
        assert not books.stopping


async def test_a_lost_worker_that_says_it_stops_is_not_noted(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.start(worker, "k")
    desk.bury(worker)
    assert desk.renew(worker, stopping=True).lost
    assert not desk.sound_books().stopping


async def test_a_hand_back_does_not_count_as_a_loss(desk: Desk) -> None:
    await desk.add("k")
    for _ in range(5):
        worker = await desk.hire()
        (run,) = await desk.take(worker)
        await desk.settle(hand_back("k", run.epoch, begun=True))
        assert await desk.ledger.leave(worker) is False
    task = desk.sound_books().tasks["k"]
    assert (task.losses, task.redelivered) == (0, True)
    for losses in (1, 2):
        await lose(desk, "k")
        assert desk.sound_books().tasks["k"].losses == losses
    # Handed back by the worker that it had to itself: still a suspect, and not lost once more.
    worker = await desk.hire()
    (run,) = await desk.take(worker)
    await desk.settle(hand_back("k", run.epoch, begun=True))
    assert desk.sound_books().tasks["k"].losses == 2
    await lose(desk, "k")
    assert desk.sound_books().dead == {"k"}


# Alone


async def lose_alone_unmarked(desk: Desk, key: str, *, then_marked: bool | None = None) -> None:
    """The suspect has a worker to itself as far as the server knows. The worker says more, or nothing, and dies."""
    worker, notes = await desk.hire(), SuspectNotes()
    deliveries = await desk.ledger.take(worker, '"w"', 10, None, notes)
    assert deliveries is not None
    assert [run.key for run in deliveries] == [key]
    assert notes.alone == deliveries[0].epoch
    for alone in () if then_marked is None else (True, then_marked):
        assert await desk.ledger.isolate(worker, deliveries[0], alone=alone)
        desk.sound_books()
    desk.bury(worker)


async def test_a_task_is_buried_only_if_its_process_had_no_other_body(desk: Desk) -> None:
    """Whether there was one only the worker knows: another worker of its process, or a body that was left behind."""
    await lose_twice(desk, "innocent")
    for losses in (3, 4, 5):
        await lose_alone_unmarked(desk, "innocent")
        assert desk.sound_books().tasks["innocent"].losses == losses
    await lose_alone_unmarked(desk, "innocent", then_marked=True)
    assert desk.sound_books().dead == {"innocent"}


async def test_a_run_that_has_its_worker_no_longer_to_itself_is_not_buried(desk: Desk) -> None:
    await lose_twice(desk, "long")
    await lose_alone_unmarked(desk, "long", then_marked=False)
    books = desk.sound_books()
    assert books.tasks["long"].losses == 3
    assert not books.alone


async def test_only_the_run_itself_can_be_marked(desk: Desk) -> None:
    await lose_twice(desk, "k")
    worker, other = await desk.hire(), await desk.hire()
    (run,) = await desk.take(worker)
    assert not await desk.ledger.isolate(other, run, alone=True)
    assert not await desk.ledger.isolate(worker, replace(run, epoch=run.epoch + 1), alone=False)
    await desk.settle(completed(run))
    assert not await desk.ledger.isolate(worker, run, alone=True)
    assert not desk.sound_books().alone


async def test_a_worker_whose_process_runs_something_else_makes_room_first(desk: Desk) -> None:
    await lose_twice(desk, "suspect")
    worker, notes = await desk.hire(), SuspectNotes(shares_process=True)
    assert await desk.ledger.take(worker, '"w"', 10, None, notes) == []
    assert "suspect" in desk.sound_books().queue
    let_them_wait(desk, "suspect")
    await bring_back(desk, "suspect")
    assert await desk.ledger.take(worker, '"w"', 10, None, notes) == []
    assert notes.reserved is not None
    assert desk.sound_books().alone == {worker: "suspect"}
    notes = SuspectNotes()
    assert await desk.ledger.claim(worker, '"w"', [Entry(True, desk.books().entries[0].id, b"suspect")], notes)
    assert notes.alone is not None


@pytest.mark.parametrize(("workers", "most"), [(1, 1), (2, 1), (3, 1), (4, 2), (7, 3)])
async def test_at_most_half_of_the_workers_are_alone_at_once(desk: Desk, workers: int, most: int) -> None:
    suspects = [f"suspect {n}" for n in range(workers)]
    for key in suspects:
        await lose_twice(desk, key)
        await put_off(desk)
    fleet = [await desk.hire() for _ in range(workers)]
    await bring_back(desk, *suspects)
    for worker in fleet:
        await desk.take(worker, 1)
    books = desk.sound_books()
    assert len(books.alone) == len(books.running) == most
    # A worker that is free runs what else there is.
    free = next(worker for worker in fleet if worker not in books.alone) if workers > 1 else None
    if free is not None:
        await desk.add("plain")
        assert "plain" in [run.key for run in await desk.take(free)]
    # The end of one makes room for the next.
    (key, run), *_ = books.running.items()
    await desk.settle(completed(Delivery(key, b"", run.epoch)))
    for _ in range(workers):
        await bring_back(desk, *desk.books().queue)
        if len(desk.books().alone) == min(most, len(suspects) - 1):
            break
        for worker in fleet:
            await desk.take(worker, 1)
    desk.sound_books()


async def put_off(desk: Desk) -> None:
    """A worker whose process runs something else meets what waits, and puts it off."""
    busy = await desk.hire()
    assert await desk.ledger.take(busy, '"w"', 10, None, SuspectNotes(shares_process=True)) == []
    await desk.ledger.leave(busy)


async def test_a_suspect_has_its_worker_to_itself_for_as_long_as_it_took_to_be_lost(desk: Desk) -> None:
    await desk.add("k")
    lives = (7_200_000, 30_000, 300_000, 5_000)
    told: list[float] = []
    for life in lives:
        worker, notes = await desk.hire(), SuspectNotes()
        deliveries = await desk.ledger.take(worker, '"w"', 10, None, notes)
        assert deliveries
        told.append(notes.alone_seconds)
        age_run(desk, "k", life)
        desk.bury(worker)
        desk.sound_books()
    # From the second loss on it is known; a minute at least.
    assert told[:3] == [0, 0, 60]
    assert 300 <= told[3] < 360


def age_run(desk: Desk, key: str, ms: int) -> None:
    """As if the run had begun so long ago."""
    running = desk.ledger.keys.key("running")
    record = bytearray(desk.client.hget(running, key))
    struct.pack_into("<d", record, 8, desk.now() - ms)
    desk.client.hset(running, key, bytes(record))


# Halves


async def test_after_the_first_loss_there_is_no_restriction(desk: Desk) -> None:
    keys = [f"k{n}" for n in range(10)]
    await desk.add(*keys)
    await lose(desk, *keys)
    assert not desk.sound_books().suspects
    assert await keys_of(desk, await desk.hire()) == keys


async def test_fifty_tasks_of_a_machine_that_died_twice_run_in_two_halves_at_the_same_time(desk: Desk) -> None:
    keys = [f"k{n}" for n in range(50)]
    await lose_twice(desk, *keys)
    assert desk.sound_books().suspects.groups == [set(keys)]
    first, second = await desk.hire(), await desk.hire()
    half, notes = await take(desk, first)
    assert len(half) == 25
    assert notes.refused
    assert len(await keys_of(desk, second)) == 25
    books = desk.sound_books()
    assert len(books.running) == 50
    assert not books.queue
    assert not books.streams["front"].undelivered(books.streams["front"].entries[-1].id)

    for worker in (first, second):
        desk.bury(worker)
    books = desk.sound_books()
    assert sorted(len(group) for group in books.suspects.groups) == [25, 25]
    assert not books.dead


@pytest.mark.parametrize(("size", "most"), [(2, 1), (3, 1), (4, 2), (5, 2), (9, 4)])
async def test_a_worker_runs_at_most_half_of_a_group(desk: Desk, size: int, most: int) -> None:
    await lose_twice(desk, *(f"k{n}" for n in range(size)))
    worker = await desk.hire()
    assert len(await keys_of(desk, worker)) == most
    assert len(await keys_of(desk, worker)) == 0
    books = desk.sound_books()
    assert {task.place for key, task in books.tasks.items() if key not in books.running} == {3}, "for other workers"


async def test_a_member_that_ends_makes_room_for_the_next(desk: Desk) -> None:
    await lose_twice(desk, "a", "b", "c")
    worker = await desk.hire()
    for _ in range(3):
        (run,) = await desk.take(worker)
        await desk.settle(completed(run))
        desk.sound_books()
    books = desk.sound_books()
    assert not books.tasks
    assert not books.suspects


async def test_suspects_run_beside_plain_tasks(desk: Desk) -> None:
    await lose_twice(desk, "a", "b")
    await desk.add("plain")
    assert await keys_of(desk, await desk.hire()) == ["a", "plain"]


async def test_groups_are_split_and_never_joined(desk: Desk) -> None:
    await lose_twice(desk, "a", "b", "c", "d")
    await desk.add("once")
    worker = await desk.hire()
    assert await keys_of(desk, worker, 5) == ["a", "b", "once"]
    desk.bury(worker)
    books = desk.sound_books()
    assert books.suspects.groups == [{"a", "b"}, {"c", "d"}]
    worker = await desk.hire()
    assert sorted(await keys_of(desk, worker)) == ["a", "c", "d", "once"]
    desk.bury(worker)
    # Those that were suspects before are apart from the one that is for the first time.
    assert desk.sound_books().suspects.groups == [{"a"}, {"b"}, {"c", "d"}, {"once"}]


@pytest.mark.parametrize("neighbours", [1, 4, 20, 63])
@pytest.mark.parametrize("slots", [5, 100])
async def test_a_poison_is_buried_and_all_its_neighbours_complete(desk: Desk, neighbours: int, slots: int) -> None:
    """One worker after the other takes what it may; it dies if it has the poison, and completes what it has if not."""
    keys = [f"neighbour {n}" for n in range(neighbours)]
    await desk.add(*keys[: neighbours // 2], "poison", *keys[neighbours // 2 :])
    deaths = 0
    for _ in range(200):
        worker = await desk.hire()
        runs = await desk.take(worker, slots)
        if any(run.key == "poison" for run in runs):
            desk.bury(worker)
            deaths += 1
        else:
            await desk.settle(*(completed(run) for run in runs))
            await desk.ledger.leave(worker)
        books = desk.sound_books()
        if not books.tasks:
            break
        await bring_back(desk, *books.queue)
    books = desk.sound_books()
    assert not books.leftovers
    assert books.dead == {"poison"}
    assert {key for key, record in books.finished.items() if record.state is ExecutionState.COMPLETED} == set(keys)
    assert deaths <= 3 + min(slots, neighbours + 1).bit_length()


# A single suspect


async def test_a_single_suspect_has_its_worker_to_itself(desk: Desk) -> None:
    await lose_twice(desk, "suspect")
    await desk.add("before", "after")
    worker = await desk.hire()
    keys, notes = await take(desk, worker)
    assert keys == ["suspect"]
    books = desk.sound_books()
    assert notes == SuspectNotes(alone=books.running["suspect"].epoch)
    # What the same read brought is for the others, at once and uncounted.
    assert [(key, books.tasks[key].place, books.tasks[key].losses) for key in ("before", "after")] == [
        ("before", 3, 0),
        ("after", 3, 0),
    ]
    assert await keys_of(desk, await desk.hire()) == ["before", "after"]


async def test_a_busy_worker_leaves_a_single_suspect_to_an_idle_one(desk: Desk) -> None:
    busy = await desk.hire()
    await desk.start(busy, "long")
    await lose_twice(desk, "suspect")
    due = desk.books().tasks["suspect"].due_ms
    keys, notes = await take(desk, busy)
    assert (keys, notes) == ([], SuspectNotes())
    books = desk.sound_books()
    assert desk.now() + 10 <= books.queue["suspect"] + 500 <= desk.now() + 1010
    assert books.tasks["suspect"].due_ms == due, "what limits go by does not change"
    await bring_back(desk, "suspect")
    assert desk.sound_books().tasks["suspect"].place == 3, "not behind all that wait"
    assert await keys_of(desk, await desk.hire()) == ["suspect"]


async def test_a_suspect_that_only_busy_workers_meet_is_reserved_and_runs_when_one_has_drained(desk: Desk) -> None:
    busy = await desk.hire()
    run = await desk.start(busy, "long")
    await lose_twice(desk, "suspect")
    entry = await reserve(desk, busy, "suspect")
    books = desk.sound_books()
    assert books.suspects.reserved == {busy: "suspect"}
    # Asking again changes nothing while it is busy.
    assert await desk.claim(busy, [entry]) == []
    assert desk.sound_books().suspects.reserved == {busy: "suspect"}

    await desk.settle(completed(run))
    (suspect,) = await desk.claim(busy, [entry]) or []
    assert suspect.key == "suspect"
    desk.sound_books()
    desk.bury(busy)
    assert desk.sound_books().dead == {"suspect"}


async def test_a_worker_that_cannot_drain_gives_the_suspect_up_and_reserves_none_for_a_while(desk: Desk) -> None:
    busy, other = await desk.hire(), await desk.hire()
    await desk.start(busy, "long")
    await desk.start(other, "long too")
    await lose_twice(desk, "suspect")
    entry = await reserve(desk, busy, "suspect")
    assert await desk.claim(busy, [entry], gives_up=True) == []
    books = desk.sound_books()
    assert not books.suspects.reserved
    assert books.suspects.unwilling == {busy}

    let_them_wait(desk, "suspect")
    await bring_back(desk, "suspect")
    assert await take(desk, busy) == ([], SuspectNotes())
    await bring_back(desk, "suspect")
    keys, notes = await take(desk, other)
    assert (keys, notes.reserved is not None) == ([], True)
    assert desk.sound_books().suspects.reserved == {other: "suspect"}


@pytest.mark.parametrize("end", ["dies", "leaves"])
async def test_when_the_worker_that_reserved_a_suspect_is_gone_another_has_it(desk: Desk, end: str) -> None:
    busy = await desk.hire()
    await desk.start(busy, "long")
    await lose_twice(desk, "suspect")
    await reserve(desk, busy, "suspect")
    if end == "dies":
        desk.bury(busy)
    else:
        assert await desk.ledger.leave(busy) is True
        desk.sound_books()
        desk.reclaim()
    books = desk.sound_books()
    assert not books.suspects.reserved
    assert books.tasks["suspect"].losses == 2, "it did not run there"
    assert await keys_of(desk, await desk.hire(), 1) == ["long"]
    assert await keys_of(desk, await desk.hire()) == ["suspect"]


@pytest.mark.parametrize("end", ["cancelled", "replaced", "cleared"])
async def test_a_reserved_suspect_that_ends_another_way_leaves_nothing(desk: Desk, end: str) -> None:
    busy = await desk.hire()
    run = await desk.start(busy, "long")
    await lose_twice(desk, "suspect")
    entry = await reserve(desk, busy, "suspect")
    if end == "cancelled":
        await desk.ledger.cancel("suspect")
    elif end == "cleared":
        await desk.ledger.clear()
    else:
        await desk.add("suspect", replace=True, due_ms=desk.later())
    assert not desk.sound_books().suspects
    await desk.settle(completed(run))
    assert await desk.claim(busy, [entry]) == []
    assert not desk.sound_books().suspects


async def test_a_worker_reserves_one_suspect_at_a_time(desk: Desk) -> None:
    busy = await desk.hire()
    await desk.start(busy, "long")
    for key in ("one", "two"):
        await lose_twice(desk, key)
        (run,) = await desk.take(await desk.hire())
        await desk.settle(hand_back(key, run.epoch, delay_ms=60_000))
    await bring_back(desk, "one", "two")
    assert await keys_of(desk, busy) == []
    let_them_wait(desk, "one", "two")
    await bring_back(desk, "one", "two")
    assert await keys_of(desk, busy) == []
    books = desk.sound_books()
    assert len(books.suspects.reserved) == 1
    assert len(books.queue) == 1


# However a suspect's run ends


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    "end", ["settled", "cancelled", "replaced", "parked", "handed back", "retried", "parked and cancelled"]
)
async def test_however_the_run_of_a_suspect_ends_its_worker_may_take_the_next(desk: Desk, end: str, size: int) -> None:
    await lose_twice(desk, *(f"k{n}" for n in range(size)))
    worker = await desk.hire()
    (run,) = await desk.take(worker)
    if end == "settled":
        await desk.settle(completed(run))
    elif end == "cancelled":
        await desk.ledger.cancel(run.key)
        await desk.settle(hand_back(run.key, run.epoch))
    elif end == "replaced":
        await desk.add(run.key, replace=True, due_ms=desk.later())
    elif end == "retried":
        await desk.settle(reschedule(run.key, run.epoch, attempt=2, delay_ms=60_000))
    elif end == "handed back":
        await desk.settle(hand_back(run.key, run.epoch, delay_ms=60_000))
    else:
        if end == "parked and cancelled":
            await desk.ledger.cancel(run.key)
        assert await desk.acquire(run.key, run.epoch, [("L", 0)]) == 2
    books = desk.sound_books()
    assert not books.suspects.running
    assert (run.key in books.suspects.group_of) is (end in ("parked", "handed back"))
    assert [r.key for r in await desk.take(worker)] == [f"k{n}" for n in range(1, size)]


# Hand-over


class Waiter:
    """An idle worker: it waits in a blocking read, has offered a slot and listens for what it is handed."""

    def __init__(self, desk: Desk, worker: str) -> None:
        self.desk, self.worker = desk, worker
        self._channel = desk.client.pubsub()
        self._channel.subscribe(desk.ledger.keys.hand_channel(worker))
        assert self._channel.get_message(timeout=5) is not None

    async def offer(self) -> None:
        kept = KeptSlot(offered=False, last_epoch=0)
        assert await self.desk.ledger.take(self.worker, '"w"', 1, kept) == []
        assert kept.answer == 1

    def handed(self) -> str | None:
        message = self._channel.get_message(timeout=0.2)
        return bytes_text(unpack_from_script(message["data"])[0]) if message else None

    def close(self) -> None:
        self._channel.close()


async def test_a_hand_over_that_meets_a_suspect_puts_it_to_the_front(desk: Desk) -> None:
    """However it got among the plain tasks."""
    await lose_twice(desk, "suspect")
    keys = desk.ledger.keys
    (entry,) = desk.books().streams["front"].entries
    record = bytearray(desk.client.hget(keys.tasks, "suspect"))
    desk.client.xdel(keys.front, entry.id)
    waiter = Waiter(desk, await desk.hire())
    try:
        await waiter.offer()
        id = desk.client.xadd(keys.stream, {"k": "suspect"}).decode()
        record[1] = 1
        record[24:36] = _entry(id)
        desk.client.hset(keys.tasks, "suspect", bytes(record))
        await desk.add("plain")
        assert waiter.handed() is None
        assert desk.sound_books().tasks["suspect"].place == 3
    finally:
        waiter.close()


def _entry(id: str) -> bytes:
    ms, _, seq = id.partition("-")
    return struct.pack("<dI", float(ms), int(seq))


# Residue


async def test_a_suspect_that_the_sweep_finds_without_a_group_runs_alone(desk: Desk) -> None:
    await lose_twice(desk, "a", "b")
    desk.client.delete(desk.ledger.keys.key("suspects"))
    worker = await desk.hire()
    keys, notes = await take(desk, worker)
    assert (keys, notes.alone is not None) == (["a"], True)
    assert notes.alone is not None
    await desk.settle(completed(Delivery("a", b"", notes.alone, 0)))
    (run,) = await desk.take(worker)
    await desk.settle(completed(run))
    assert not desk.sound_books().suspects


async def test_events_name_how_often_a_task_was_lost(desk: Desk) -> None:
    heard: Any = desk.client.pubsub()
    heard.subscribe(desk.ledger.keys.task_channel("poison"))
    await desk.add("poison")
    for _ in range(3):
        await lose(desk, "poison")
    events: list[Any] = []
    while (message := heard.get_message(timeout=0.5)) is not None:
        if message["type"] == "message":
            events.append(json.loads(message["data"].partition(b"\n")[0]))
    heard.close()
    assert events[-1]["state"] == "failed"
    assert "losses so far: 3;" in events[-1]["error"]
