"""Tasks that lose their workers: which of them are buried, and how the others get through."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import pytest

from docket.codec.packing import unpack_from_script
from docket.errors import WorkerLost
from docket.ledger import Delivery, Entry, ReservedSlot, SuspectNotes, requeue, reschedule
from docket.ledger.endings import own_error, read_ending
from docket.model.states import ExecutionState
from docket.storage.keys import bytes_text, text_bytes
from docket.storage.records import read_task
from tests.waiting import SECONDS

from .ledger_client import LEASE_MS, LedgerClient, completed, new_ledger


async def lose(ledger_client: LedgerClient, *keys: str) -> None:
    """A worker takes all there is and dies; these must have been among it."""
    worker = await ledger_client.hire()
    assert set(keys) <= {run.key for run in await ledger_client.take(worker)}
    ledger_client.bury(worker)


async def lose_twice(ledger_client: LedgerClient, *keys: str) -> None:
    """The tasks are a group of suspects from now on."""
    await ledger_client.add(*keys)
    await lose(ledger_client, *keys)
    await lose(ledger_client, *keys)


async def take(ledger_client: LedgerClient, worker: str, count: int = 100) -> tuple[list[str], SuspectNotes]:
    notes = SuspectNotes()
    deliveries = await ledger_client.ledger.deliveries.take(worker, '"w"', count, None, notes)
    assert deliveries is not None
    await ledger_client.isolate(worker, deliveries, notes)
    return [run.key for run in deliveries], notes


async def keys_of(ledger_client: LedgerClient, worker: str, count: int = 100) -> list[str]:
    return (await take(ledger_client, worker, count))[0]


def let_them_wait(ledger_client: LedgerClient, *keys: str) -> None:
    """As if busy workers had met these suspects more than a second ago."""
    for key in keys:
        assert ledger_client.client.hset(ledger_client.ledger.keys.key("suspects"), b"m" + text_bytes(key), "1") == 0


async def bring_back(ledger_client: LedgerClient, *keys: str) -> None:
    """Delayed tasks come back from the schedule."""
    ledger_client.fall_due(*keys)
    await ledger_client.ledger.tasks.stage()


async def reserve(ledger_client: LedgerClient, worker: str, key: str) -> Entry:
    """The busy worker meets the single suspect for so long that it reserves it."""
    assert await keys_of(ledger_client, worker) == []
    let_them_wait(ledger_client, key)
    await bring_back(ledger_client, key)
    keys, notes = await take(ledger_client, worker)
    assert (keys, notes.alone) == ([], None)
    assert notes.reserved is not None
    assert notes.reserved.key == text_bytes(key)
    return notes.reserved


# Who is buried


async def test_a_task_that_lost_three_workers_alone_has_failed_and_is_kept_as_a_dead_letter(
    ledger_client: LedgerClient,
) -> None:
    await ledger_client.add("poison")
    for losses in (1, 2):
        await lose(ledger_client, "poison")
        assert ledger_client.checked_state().tasks["poison"].losses == losses
    worker = await ledger_client.hire()
    (run,) = await ledger_client.take(worker)
    ledger_client.end_lease(worker)
    assert ledger_client.reclaim() == [1, 0, 1, 0, 0]

    stored_state = ledger_client.checked_state()
    assert not stored_state.tasks
    assert not stored_state.suspects
    assert stored_state.dead == {"poison"}
    finished = stored_state.finished["poison"]
    assert finished.state is ExecutionState.FAILED
    assert (finished.epoch, finished.task.losses) == (run.epoch, 3)
    ending = read_ending(finished.tail)
    assert ending.error is not None
    assert ending.error.startswith("WorkerLost")
    assert "losses so far: 3;" in ending.error
    error = own_error(ending)
    assert isinstance(error, WorkerLost)
    assert "losses so far: 3;" in str(error)


async def test_a_dead_letter_can_be_added_again_and_starts_with_a_clean_slate(ledger_client: LedgerClient) -> None:
    await ledger_client.add("poison")
    for _ in range(3):
        await lose(ledger_client, "poison")
    (result,) = await ledger_client.add("poison")
    assert result.scheduled
    stored_state = ledger_client.checked_state()
    assert stored_state.tasks["poison"].losses == 0
    assert stored_state.dead == {"poison"}


async def test_a_finished_attempt_wipes_the_slate(ledger_client: LedgerClient) -> None:
    await lose_twice(ledger_client, "k")
    worker = await ledger_client.hire()
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(completed(run))
    await ledger_client.add("k")
    await lose(ledger_client, "k")
    assert ledger_client.checked_state().tasks["k"].losses == 1


async def test_tasks_that_are_lost_together_are_never_buried(ledger_client: LedgerClient) -> None:
    """However often their machine dies: each time a worker has more than one of them."""
    keys = [f"k{n}" for n in range(64)]
    await ledger_client.add(*keys)
    for _ in range(6):
        ledger_client.bury(await _busy(ledger_client))
        assert not ledger_client.checked_state().dead
    assert set(ledger_client.stored_state().tasks) == set(keys)


async def _busy(ledger_client: LedgerClient) -> str:
    worker = await ledger_client.hire()
    assert len(await ledger_client.take(worker)) > 1
    return worker


@pytest.mark.parametrize("deliveries", [150, 100, 101, 20, 21])
async def test_the_last_of_many_that_are_recovered_in_steps_was_not_alone(
    ledger_client: LedgerClient, deliveries: int
) -> None:
    """Where two losses bury a task, the stored state says whether it was the only run."""
    strict = LedgerClient(new_ledger(ledger_client.ledger.server, max_losses=2), ledger_client.client)
    await ledger_client.add("lost once")
    await lose(ledger_client, "lost once")
    worker = await ledger_client.hire()
    await ledger_client.add(*(f"neighbour {n}" for n in range(deliveries - 1)))
    await ledger_client.take(worker, 500)
    # The task was put on `front`, which is recovered last.
    ledger_client.end_lease(worker)
    answers = [strict.reclaim()]
    while answers[-1][4]:
        strict.checked_state()
        answers.append(strict.reclaim())
    assert sum(answer[2] for answer in answers) == 0
    stored_state = strict.checked_state()
    assert not stored_state.dead
    assert stored_state.tasks["lost once"].losses == 2
    assert {task.losses for key, task in stored_state.tasks.items() if key != "lost once"} <= {1}


async def test_deliveries_that_were_not_claimed_are_no_neighbours(ledger_client: LedgerClient) -> None:
    await lose_twice(ledger_client, "poison")
    worker = await ledger_client.hire()
    assert await keys_of(ledger_client, worker) == ["poison"]
    await ledger_client.add("read", "read too")
    ledger_client.read(worker)
    ledger_client.end_lease(worker)
    assert ledger_client.reclaim() == [1, 2, 1, 0, 0]
    stored_state = ledger_client.checked_state()
    assert stored_state.dead == {"poison"}
    assert {task.losses for task in stored_state.tasks.values()} == {0}


# How many losses it takes


async def test_one_loss_alone_is_enough_if_the_docket_says_so(ledger_client: LedgerClient) -> None:
    strict = LedgerClient(new_ledger(ledger_client.ledger.server, max_losses=1), ledger_client.client)
    await ledger_client.add("a", "b")
    worker = await ledger_client.hire()
    await ledger_client.take(worker)
    strict.bury(worker)
    assert not strict.checked_state().dead, "neither was alone"
    worker = await ledger_client.hire()
    await ledger_client.take(worker, 1)
    strict.bury(worker)
    stored_state = strict.checked_state()
    assert len(stored_state.dead) == 1
    (finished,) = stored_state.finished.values()
    assert "losses so far: 2;" in (read_ending(finished.tail).error or "")


@pytest.mark.parametrize("most", [1, 5, 12])
async def test_a_task_may_say_how_many_losses_bury_it(ledger_client: LedgerClient, most: int) -> None:
    worker = await ledger_client.hire()
    await ledger_client.ledger.fleet.register(worker, LEASE_MS, ["f"], {"f": most})
    await ledger_client.add("k")
    for _ in range(most - 1):
        await lose_with(ledger_client, worker)
        assert "k" in ledger_client.checked_state().tasks
        worker = await ledger_client.hire_with({"f": most})
    await lose_with(ledger_client, worker)
    stored_state = ledger_client.checked_state()
    assert stored_state.dead == {"k"}
    assert f"losses so far: {most};" in (read_ending(stored_state.finished["k"].tail).error or "")


async def lose_with(ledger_client: LedgerClient, worker: str) -> None:
    assert len(await ledger_client.take(worker)) == 1
    ledger_client.bury(worker)


async def test_a_deploy_that_no_longer_declares_a_number_takes_the_dockets(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire_with({"f": 1})
    assert ledger_client.checked_state().max_losses == {"f": 1}
    other = await ledger_client.hire("g")
    assert ledger_client.checked_state().max_losses == {"f": 1}, "it knows nothing of that function"
    await ledger_client.hire("f")
    assert ledger_client.checked_state().max_losses == {}
    await ledger_client.ledger.fleet.leave(worker)
    await ledger_client.ledger.fleet.leave(other)
    await ledger_client.add("k")
    await lose(ledger_client, "k")
    assert "k" in ledger_client.checked_state().tasks


# Told to stop


@pytest.mark.parametrize("how", ["killed while it stops", "leaves without waiting"])
async def test_a_worker_that_was_told_to_stop_does_not_count(ledger_client: LedgerClient, how: str) -> None:
    await ledger_client.add("k")
    for _ in range(5):
        worker = await ledger_client.hire()
        (run,) = await ledger_client.take(worker)
        assert read_task(run.record).losses == 0
        if how == "killed while it stops":
            assert not ledger_client.renew(worker, stopping=True).lost
            assert ledger_client.checked_state().stopping == {worker}
            ledger_client.bury(worker)
        else:
            assert await ledger_client.ledger.fleet.leave(worker) is True
            ledger_client.checked_state()
            ledger_client.reclaim()
        stored_state = ledger_client.checked_state()
        assert (stored_state.tasks["k"].losses, stored_state.tasks["k"].redelivered) == (0, True)
        assert not stored_state.stopping


async def test_a_lost_worker_that_says_it_stops_is_not_noted(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.start(worker, "k")
    ledger_client.bury(worker)
    assert ledger_client.renew(worker, stopping=True).lost
    assert not ledger_client.checked_state().stopping


async def test_a_requeue_does_not_count_as_a_loss(ledger_client: LedgerClient) -> None:
    await ledger_client.add("k")
    for _ in range(5):
        worker = await ledger_client.hire()
        (run,) = await ledger_client.take(worker)
        await ledger_client.settle(requeue("k", run.epoch, begun=True))
        assert await ledger_client.ledger.fleet.leave(worker) is False
    task = ledger_client.checked_state().tasks["k"]
    assert (task.losses, task.redelivered) == (0, True)
    for losses in (1, 2):
        await lose(ledger_client, "k")
        assert ledger_client.checked_state().tasks["k"].losses == losses
    # Requeued by the worker that it had to itself: still a suspect, and not lost once more.
    worker = await ledger_client.hire()
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(requeue("k", run.epoch, begun=True))
    assert ledger_client.checked_state().tasks["k"].losses == 2
    await lose(ledger_client, "k")
    assert ledger_client.checked_state().dead == {"k"}


# Alone


async def lose_alone_unmarked(ledger_client: LedgerClient, key: str, *, then_marked: bool | None = None) -> None:
    """The suspect has a worker to itself as far as the server
    knows. The worker says more, or nothing, and dies."""
    worker, notes = await ledger_client.hire(), SuspectNotes()
    deliveries = await ledger_client.ledger.deliveries.take(worker, '"w"', 10, None, notes)
    assert deliveries is not None
    assert [run.key for run in deliveries] == [key]
    assert notes.alone == deliveries[0].epoch
    for alone in () if then_marked is None else (True, then_marked):
        assert await ledger_client.ledger.fleet.isolate(worker, deliveries[0], alone=alone)
        ledger_client.checked_state()
    ledger_client.bury(worker)


async def test_a_task_is_buried_only_if_its_process_had_no_other_body(ledger_client: LedgerClient) -> None:
    """Whether there was one only the worker knows: another
    worker of its process, or a body that was left behind."""
    await lose_twice(ledger_client, "innocent")
    for losses in (3, 4, 5):
        await lose_alone_unmarked(ledger_client, "innocent")
        assert ledger_client.checked_state().tasks["innocent"].losses == losses
    await lose_alone_unmarked(ledger_client, "innocent", then_marked=True)
    assert ledger_client.checked_state().dead == {"innocent"}


async def test_a_run_that_has_its_worker_no_longer_to_itself_is_not_buried(ledger_client: LedgerClient) -> None:
    await lose_twice(ledger_client, "long")
    await lose_alone_unmarked(ledger_client, "long", then_marked=False)
    stored_state = ledger_client.checked_state()
    assert stored_state.tasks["long"].losses == 3
    assert not stored_state.alone


async def test_only_the_run_itself_can_be_marked(ledger_client: LedgerClient) -> None:
    await lose_twice(ledger_client, "k")
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    (run,) = await ledger_client.take(worker)
    assert not await ledger_client.ledger.fleet.isolate(other, run, alone=True)
    assert not await ledger_client.ledger.fleet.isolate(worker, replace(run, epoch=run.epoch + 1), alone=False)
    await ledger_client.settle(completed(run))
    assert not await ledger_client.ledger.fleet.isolate(worker, run, alone=True)
    assert not ledger_client.checked_state().alone


async def test_a_worker_whose_process_runs_something_else_makes_room_first(ledger_client: LedgerClient) -> None:
    await lose_twice(ledger_client, "suspect")
    worker, notes = await ledger_client.hire(), SuspectNotes(shares_process=True)
    assert await ledger_client.ledger.deliveries.take(worker, '"w"', 10, None, notes) == []
    assert "suspect" in ledger_client.checked_state().schedule
    let_them_wait(ledger_client, "suspect")
    await bring_back(ledger_client, "suspect")
    assert await ledger_client.ledger.deliveries.take(worker, '"w"', 10, None, notes) == []
    assert notes.reserved is not None
    assert ledger_client.checked_state().alone == {worker: "suspect"}
    notes = SuspectNotes()
    assert await ledger_client.ledger.deliveries.claim(
        worker, '"w"', [Entry(True, ledger_client.stored_state().entries[0].id, b"suspect")], notes
    )
    assert notes.alone is not None


@pytest.mark.parametrize(("workers", "most"), [(1, 1), (2, 1), (3, 1), (4, 2), (7, 3)])
async def test_at_most_half_of_the_workers_are_alone_at_once(
    ledger_client: LedgerClient, workers: int, most: int
) -> None:
    suspects = [f"suspect {n}" for n in range(workers)]
    for key in suspects:
        await lose_twice(ledger_client, key)
        await delay(ledger_client)
    fleet = [await ledger_client.hire() for _ in range(workers)]
    await bring_back(ledger_client, *suspects)
    for worker in fleet:
        await ledger_client.take(worker, 1)
    stored_state = ledger_client.checked_state()
    assert len(stored_state.alone) == len(stored_state.running) == most
    # A worker that is free runs what else there is.
    free = next(worker for worker in fleet if worker not in stored_state.alone) if workers > 1 else None
    if free is not None:
        await ledger_client.add("plain")
        assert "plain" in [run.key for run in await ledger_client.take(free)]
    # The end of one makes room for the next.
    (key, run), *_ = stored_state.running.items()
    await ledger_client.settle(completed(Delivery(key, b"", run.epoch)))
    for _ in range(workers):
        await bring_back(ledger_client, *ledger_client.stored_state().schedule)
        if len(ledger_client.stored_state().alone) == min(most, len(suspects) - 1):
            break
        for worker in fleet:
            await ledger_client.take(worker, 1)
    ledger_client.checked_state()


async def delay(ledger_client: LedgerClient) -> None:
    """A worker whose process runs something else meets what waits, and delays it."""
    busy = await ledger_client.hire()
    assert await ledger_client.ledger.deliveries.take(busy, '"w"', 10, None, SuspectNotes(shares_process=True)) == []
    await ledger_client.ledger.fleet.leave(busy)


async def test_a_suspect_has_its_worker_to_itself_for_as_long_as_it_took_to_be_lost(
    ledger_client: LedgerClient,
) -> None:
    await ledger_client.add("k")
    lives = (7_200_000, 30_000, 300_000, 5_000)
    told: list[float] = []
    for life in lives:
        worker, notes = await ledger_client.hire(), SuspectNotes()
        deliveries = await ledger_client.ledger.deliveries.take(worker, '"w"', 10, None, notes)
        assert deliveries
        told.append(notes.alone_seconds)
        age_run(ledger_client, "k", life)
        ledger_client.bury(worker)
        ledger_client.checked_state()
    # From the second loss on it is known; a minute at least.
    assert told[:3] == [0, 0, 60]
    assert 300 <= told[3] < 360


def age_run(ledger_client: LedgerClient, key: str, ms: int) -> None:
    """As if the run had begun so long ago."""
    running = ledger_client.ledger.keys.key("running")
    record = bytearray(ledger_client.client.hget(running, key))
    struct.pack_into("<d", record, 8, ledger_client.now() - ms)
    ledger_client.client.hset(running, key, bytes(record))


# Halves


async def test_after_the_first_loss_there_is_no_restriction(ledger_client: LedgerClient) -> None:
    keys = [f"k{n}" for n in range(10)]
    await ledger_client.add(*keys)
    await lose(ledger_client, *keys)
    assert not ledger_client.checked_state().suspects
    assert await keys_of(ledger_client, await ledger_client.hire()) == keys


async def test_fifty_tasks_of_a_machine_that_died_twice_run_in_two_halves_at_the_same_time(
    ledger_client: LedgerClient,
) -> None:
    keys = [f"k{n}" for n in range(50)]
    await lose_twice(ledger_client, *keys)
    assert ledger_client.checked_state().suspects.groups == [set(keys)]
    first, second = await ledger_client.hire(), await ledger_client.hire()
    half, notes = await take(ledger_client, first)
    assert len(half) == 25
    assert notes.refused
    assert len(await keys_of(ledger_client, second)) == 25
    stored_state = ledger_client.checked_state()
    assert len(stored_state.running) == 50
    assert not stored_state.schedule
    assert not stored_state.streams["front"].undelivered(stored_state.streams["front"].entries[-1].id)

    for worker in (first, second):
        ledger_client.bury(worker)
    stored_state = ledger_client.checked_state()
    assert sorted(len(group) for group in stored_state.suspects.groups) == [25, 25]
    assert not stored_state.dead


@pytest.mark.parametrize(("size", "most"), [(2, 1), (3, 1), (4, 2), (5, 2), (9, 4)])
async def test_a_worker_runs_at_most_half_of_a_group(ledger_client: LedgerClient, size: int, most: int) -> None:
    await lose_twice(ledger_client, *(f"k{n}" for n in range(size)))
    worker = await ledger_client.hire()
    assert len(await keys_of(ledger_client, worker)) == most
    assert len(await keys_of(ledger_client, worker)) == 0
    stored_state = ledger_client.checked_state()
    assert {task.location for key, task in stored_state.tasks.items() if key not in stored_state.running} == {3}, (
        "for other workers"
    )


async def test_a_member_that_ends_makes_room_for_the_next(ledger_client: LedgerClient) -> None:
    await lose_twice(ledger_client, "a", "b", "c")
    worker = await ledger_client.hire()
    for _ in range(3):
        (run,) = await ledger_client.take(worker)
        await ledger_client.settle(completed(run))
        ledger_client.checked_state()
    stored_state = ledger_client.checked_state()
    assert not stored_state.tasks
    assert not stored_state.suspects


async def test_suspects_run_beside_plain_tasks(ledger_client: LedgerClient) -> None:
    await lose_twice(ledger_client, "a", "b")
    await ledger_client.add("plain")
    assert await keys_of(ledger_client, await ledger_client.hire()) == ["a", "plain"]


async def test_groups_are_split_and_never_joined(ledger_client: LedgerClient) -> None:
    await lose_twice(ledger_client, "a", "b", "c", "d")
    await ledger_client.add("once")
    worker = await ledger_client.hire()
    assert await keys_of(ledger_client, worker, 5) == ["a", "b", "once"]
    ledger_client.bury(worker)
    stored_state = ledger_client.checked_state()
    assert stored_state.suspects.groups == [{"a", "b"}, {"c", "d"}]
    worker = await ledger_client.hire()
    assert sorted(await keys_of(ledger_client, worker)) == ["a", "c", "d", "once"]
    ledger_client.bury(worker)
    # Those that were suspects before are apart from the one that is for the first time.
    assert ledger_client.checked_state().suspects.groups == [{"a"}, {"b"}, {"c", "d"}, {"once"}]


@pytest.mark.parametrize("neighbours", [1, 4, 20, 63])
@pytest.mark.parametrize("slots", [5, 100])
async def test_a_poison_is_buried_and_all_its_neighbours_complete(
    ledger_client: LedgerClient, neighbours: int, slots: int
) -> None:
    """One worker after the other takes what it may; it dies
    if it has the poison, and completes what it has if not."""
    keys = [f"neighbour {n}" for n in range(neighbours)]
    await ledger_client.add(*keys[: neighbours // 2], "poison", *keys[neighbours // 2 :])
    deaths = 0
    for _ in range(200):
        worker = await ledger_client.hire()
        runs = await ledger_client.take(worker, slots)
        if any(run.key == "poison" for run in runs):
            ledger_client.bury(worker)
            deaths += 1
        else:
            await ledger_client.settle(*(completed(run) for run in runs))
            await ledger_client.ledger.fleet.leave(worker)
        stored_state = ledger_client.checked_state()
        if not stored_state.tasks:
            break
        await bring_back(ledger_client, *stored_state.schedule)
    stored_state = ledger_client.checked_state()
    assert not stored_state.leftovers
    assert stored_state.dead == {"poison"}
    assert {key for key, record in stored_state.finished.items() if record.state is ExecutionState.COMPLETED} == set(
        keys
    )
    assert deaths <= 3 + min(slots, neighbours + 1).bit_length()


# A single suspect


async def test_a_single_suspect_has_its_worker_to_itself(ledger_client: LedgerClient) -> None:
    await lose_twice(ledger_client, "suspect")
    await ledger_client.add("before", "after")
    worker = await ledger_client.hire()
    keys, notes = await take(ledger_client, worker)
    assert keys == ["suspect"]
    stored_state = ledger_client.checked_state()
    assert notes == SuspectNotes(alone=stored_state.running["suspect"].epoch)
    # What the same read brought is for the others, at once and uncounted.
    assert [(key, stored_state.tasks[key].location, stored_state.tasks[key].losses) for key in ("before", "after")] == [
        ("before", 3, 0),
        ("after", 3, 0),
    ]
    assert await keys_of(ledger_client, await ledger_client.hire()) == ["before", "after"]


async def test_a_busy_worker_leaves_a_single_suspect_to_an_idle_one(ledger_client: LedgerClient) -> None:
    busy = await ledger_client.hire()
    await ledger_client.start(busy, "long")
    await lose_twice(ledger_client, "suspect")
    due = ledger_client.stored_state().tasks["suspect"].due_ms
    keys, notes = await take(ledger_client, busy)
    assert (keys, notes) == ([], SuspectNotes())
    stored_state = ledger_client.checked_state()
    assert ledger_client.now() + 10 <= stored_state.schedule["suspect"] + 500 <= ledger_client.now() + 1010
    assert stored_state.tasks["suspect"].due_ms == due, "what limits go by does not change"
    await bring_back(ledger_client, "suspect")
    assert ledger_client.checked_state().tasks["suspect"].location == 3, "not behind all that wait"
    assert await keys_of(ledger_client, await ledger_client.hire()) == ["suspect"]


async def test_a_suspect_that_only_busy_workers_meet_is_reserved_and_runs_when_one_has_drained(
    ledger_client: LedgerClient,
) -> None:
    busy = await ledger_client.hire()
    run = await ledger_client.start(busy, "long")
    await lose_twice(ledger_client, "suspect")
    entry = await reserve(ledger_client, busy, "suspect")
    stored_state = ledger_client.checked_state()
    assert stored_state.suspects.reserved == {busy: "suspect"}
    # Asking again changes nothing while it is busy.
    assert await ledger_client.claim(busy, [entry]) == []
    assert ledger_client.checked_state().suspects.reserved == {busy: "suspect"}

    await ledger_client.settle(completed(run))
    (suspect,) = await ledger_client.claim(busy, [entry]) or []
    assert suspect.key == "suspect"
    ledger_client.checked_state()
    ledger_client.bury(busy)
    assert ledger_client.checked_state().dead == {"suspect"}


async def test_a_worker_that_cannot_drain_gives_the_suspect_up_and_reserves_none_for_a_while(
    ledger_client: LedgerClient,
) -> None:
    busy, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.start(busy, "long")
    await ledger_client.start(other, "long too")
    await lose_twice(ledger_client, "suspect")
    entry = await reserve(ledger_client, busy, "suspect")
    assert await ledger_client.claim(busy, [entry], gives_up=True) == []
    stored_state = ledger_client.checked_state()
    assert not stored_state.suspects.reserved
    assert stored_state.suspects.unwilling == {busy}

    let_them_wait(ledger_client, "suspect")
    await bring_back(ledger_client, "suspect")
    assert await take(ledger_client, busy) == ([], SuspectNotes())
    await bring_back(ledger_client, "suspect")
    keys, notes = await take(ledger_client, other)
    assert (keys, notes.reserved is not None) == ([], True)
    assert ledger_client.checked_state().suspects.reserved == {other: "suspect"}


@pytest.mark.parametrize("end", ["dies", "leaves"])
async def test_when_the_worker_that_reserved_a_suspect_is_gone_another_has_it(
    ledger_client: LedgerClient, end: str
) -> None:
    busy = await ledger_client.hire()
    await ledger_client.start(busy, "long")
    await lose_twice(ledger_client, "suspect")
    await reserve(ledger_client, busy, "suspect")
    if end == "dies":
        ledger_client.bury(busy)
    else:
        assert await ledger_client.ledger.fleet.leave(busy) is True
        ledger_client.checked_state()
        ledger_client.reclaim()
    stored_state = ledger_client.checked_state()
    assert not stored_state.suspects.reserved
    assert stored_state.tasks["suspect"].losses == 2, "it did not run there"
    assert await keys_of(ledger_client, await ledger_client.hire(), 1) == ["long"]
    assert await keys_of(ledger_client, await ledger_client.hire()) == ["suspect"]


@pytest.mark.parametrize("end", ["cancelled", "replaced", "cleared"])
async def test_a_reserved_suspect_that_ends_another_way_leaves_nothing(ledger_client: LedgerClient, end: str) -> None:
    busy = await ledger_client.hire()
    run = await ledger_client.start(busy, "long")
    await lose_twice(ledger_client, "suspect")
    entry = await reserve(ledger_client, busy, "suspect")
    if end == "cancelled":
        await ledger_client.ledger.tasks.cancel("suspect")
    elif end == "cleared":
        await ledger_client.ledger.tasks.clear()
    else:
        await ledger_client.add("suspect", replace=True, due_ms=ledger_client.later())
    assert not ledger_client.checked_state().suspects
    await ledger_client.settle(completed(run))
    assert await ledger_client.claim(busy, [entry]) == []
    assert not ledger_client.checked_state().suspects


async def test_a_worker_reserves_one_suspect_at_a_time(ledger_client: LedgerClient) -> None:
    busy = await ledger_client.hire()
    await ledger_client.start(busy, "long")
    for key in ("one", "two"):
        await lose_twice(ledger_client, key)
        (run,) = await ledger_client.take(await ledger_client.hire())
        await ledger_client.settle(requeue(key, run.epoch, delay_ms=60_000))
    await bring_back(ledger_client, "one", "two")
    assert await keys_of(ledger_client, busy) == []
    let_them_wait(ledger_client, "one", "two")
    await bring_back(ledger_client, "one", "two")
    assert await keys_of(ledger_client, busy) == []
    stored_state = ledger_client.checked_state()
    assert len(stored_state.suspects.reserved) == 1
    assert len(stored_state.schedule) == 1


# However a suspect's run ends


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    "end", ["settled", "cancelled", "replaced", "parked", "requeued", "retried", "parked and cancelled"]
)
async def test_however_the_run_of_a_suspect_ends_its_worker_may_take_the_next(
    ledger_client: LedgerClient, end: str, size: int
) -> None:
    await lose_twice(ledger_client, *(f"k{n}" for n in range(size)))
    worker = await ledger_client.hire()
    (run,) = await ledger_client.take(worker)
    if end == "settled":
        await ledger_client.settle(completed(run))
    elif end == "cancelled":
        await ledger_client.ledger.tasks.cancel(run.key)
        await ledger_client.settle(requeue(run.key, run.epoch))
    elif end == "replaced":
        await ledger_client.add(run.key, replace=True, due_ms=ledger_client.later())
    elif end == "retried":
        await ledger_client.settle(reschedule(run.key, run.epoch, attempt=2, delay_ms=60_000))
    elif end == "requeued":
        await ledger_client.settle(requeue(run.key, run.epoch, delay_ms=60_000))
    else:
        if end == "parked and cancelled":
            await ledger_client.ledger.tasks.cancel(run.key)
        assert await ledger_client.acquire(run.key, run.epoch, [("L", 0)]) == 2
    stored_state = ledger_client.checked_state()
    assert not stored_state.suspects.running
    assert (run.key in stored_state.suspects.group_of) is (end in ("parked", "requeued"))
    assert [r.key for r in await ledger_client.take(worker)] == [f"k{n}" for n in range(1, size)]


# Direct delivery


class Waiter:
    """An idle worker: it waits in a blocking read, has
    offered a slot and listens for what it is handed."""

    def __init__(self, ledger_client: LedgerClient, worker: str) -> None:
        self.ledger_client, self.worker = ledger_client, worker
        self._channel = ledger_client.client.pubsub()
        self._channel.subscribe(ledger_client.ledger.keys.delivery_channel(worker))
        assert self._channel.get_message(timeout=SECONDS) is not None

    async def offer(self) -> None:
        kept = ReservedSlot(offered=False, last_epoch=0)
        assert await self.ledger_client.ledger.deliveries.take(self.worker, '"w"', 1, kept) == []
        assert kept.answer == 1

    def handed(self) -> str | None:
        """The key of the task that was delivered. Its own message, empty, comes after it."""
        self.ledger_client.client.publish(self.ledger_client.ledger.keys.delivery_channel(self.worker), b"")
        message = self._channel.get_message(timeout=SECONDS)
        return bytes_text(unpack_from_script(message["data"])[0]) if message["data"] else None

    def close(self) -> None:
        self._channel.close()


async def test_a_direct_delivery_that_meets_a_suspect_puts_it_to_the_front(ledger_client: LedgerClient) -> None:
    """However it got among the plain tasks."""
    await lose_twice(ledger_client, "suspect")
    keys = ledger_client.ledger.keys
    (entry,) = ledger_client.stored_state().streams["front"].entries
    record = bytearray(ledger_client.client.hget(keys.tasks, "suspect"))
    ledger_client.client.xdel(keys.front, entry.id)
    waiter = Waiter(ledger_client, await ledger_client.hire())
    try:
        await waiter.offer()
        id = ledger_client.client.xadd(keys.stream, {"k": "suspect"}).decode()
        record[1] = 1
        record[24:36] = _entry(id)
        ledger_client.client.hset(keys.tasks, "suspect", bytes(record))
        await ledger_client.add("plain")
        assert waiter.handed() is None
        assert ledger_client.checked_state().tasks["suspect"].location == 3
    finally:
        waiter.close()


def _entry(id: str) -> bytes:
    ms, _, seq = id.partition("-")
    return struct.pack("<dI", float(ms), int(seq))


# Residue


async def test_a_suspect_that_the_sweep_finds_without_a_group_runs_alone(ledger_client: LedgerClient) -> None:
    await lose_twice(ledger_client, "a", "b")
    ledger_client.client.delete(ledger_client.ledger.keys.key("suspects"))
    worker = await ledger_client.hire()
    keys, notes = await take(ledger_client, worker)
    assert (keys, notes.alone is not None) == (["a"], True)
    assert notes.alone is not None
    await ledger_client.settle(completed(Delivery("a", b"", notes.alone, 0)))
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(completed(run))
    assert not ledger_client.checked_state().suspects


async def test_events_name_how_often_a_task_was_lost(ledger_client: LedgerClient) -> None:
    heard: Any = ledger_client.client.pubsub()
    heard.subscribe(ledger_client.ledger.keys.task_channel("poison"))
    await ledger_client.add("poison")
    for _ in range(3):
        await lose(ledger_client, "poison")
    events: list[Any] = []
    ledger_client.client.publish(ledger_client.ledger.keys.task_channel("poison"), b"")
    while (message := heard.get_message(timeout=SECONDS))["data"] != b"":
        if message["type"] == "message" and message["data"].startswith(b"{"):
            events.append(json.loads(message["data"]))
    heard.close()
    assert events[-1]["state"] == "failed"
    assert "losses so far: 3;" in events[-1]["error"]
