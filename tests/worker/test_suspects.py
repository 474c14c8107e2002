"""A task that lost two workers gets a worker to itself, and no worker is held up for long by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from docket import CurrentWorker, Docket, ExecutionState, TaskKey, Worker
from docket.ledger import Delivery, Entry
from docket.worker.claiming import intake, isolation
from docket.worker.claiming.isolation import ProcessRuns
from docket.worker.running.runs import CancelReason, Run, Runs, Slots
from tests.run_log import RunLog
from tests.running import worker_at_work
from tests.waiting import eventually

# Where the count of losses is in a task record.
LOSSES_AT = 7
# In the flags of a run: no other body lives in its process.
ALONE = 16


@asynccontextmanager
async def elsewhere(docket: Docket, **options: Any) -> AsyncGenerator[Worker, None]:
    """A worker that counts as one of another process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "this_process", ProcessRuns)
        async with worker_at_work(docket, **options) as worker:
            yield worker


async def suspect(docket: Docket, key: str) -> None:
    """The waiting task has lost two workers."""
    async with docket.redis() as redis:
        record = bytearray(await redis.hget(docket.key("tasks"), key))  # pyright: ignore[reportArgumentType]
        record[LOSSES_AT] = 2
        await redis.hset(docket.key("tasks"), key, bytes(record))


async def reserved(docket: Docket) -> bool:
    async with docket.redis() as redis:
        fields = await redis.hkeys(docket.key("suspects"))
        return any(isinstance(field, bytes) and field.startswith(b"r") for field in fields)


async def nothing_is_noted(docket: Docket) -> None:
    async def empty() -> bool:
        async with docket.redis() as redis:
            return not await redis.exists(docket.key("suspects"), docket.key("alone"))

    await eventually(empty, "nothing is noted of suspects")


@pytest.fixture
def processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker counts as the only one of its process."""
    monkeypatch.setattr(intake, "this_process", ProcessRuns)


class HeldTasks:
    """Tasks that tell which worker began them, and go on until they are let go."""

    def __init__(self, docket: Docket) -> None:
        self.docket, self.run_log = docket, RunLog()

        async def hold(key: str = TaskKey(), worker: Worker = CurrentWorker()) -> str:
            await self.run_log.hold(key)
            return worker.name

        self.hold = hold
        docket.register(hold)

    async def add(self, key: str) -> None:
        await self.docket.add(self.hold, key=key)()

    async def add_suspect(self, key: str) -> None:
        """It is a suspect before any worker can see it."""
        when = self.docket.now() + timedelta(hours=1)
        await self.docket.add(self.hold, when=when, key=key)()
        await suspect(self.docket, key)
        async with self.docket.redis() as redis:
            await redis.zadd(self.docket.queue_key, {key: 1})
        await self.docket.ledger.tasks.stage()

    async def ran_at(self, key: str) -> str:
        execution = await self.docket.get_execution(key)
        assert execution is not None
        return await execution.get_result()


@pytest.mark.usefixtures("processes_of_their_own")
async def test_while_a_suspect_runs_its_worker_takes_nothing_else(docket: Docket) -> None:
    held = HeldTasks(docket)
    async with worker_at_work(docket, concurrency=5) as first:
        await held.add_suspect("suspect")
        await held.run_log.has("suspect")
        for n in range(5):
            await held.add(f"plain-{n}")
        async with worker_at_work(docket, concurrency=5):
            await held.run_log.has(*(f"plain-{n}" for n in range(5)))
            # All slots of the other worker are in use: the next has to wait for the suspect.
            await held.add("next")
            held.run_log.let_go(*(f"plain-{n}" for n in range(4)))
            held.run_log.let_go("next")
            for n in range(4):
                assert await held.ran_at(f"plain-{n}") != first.name
            held.run_log.let_go("suspect", "plain-4")
            assert await held.ran_at("suspect") == first.name
        await held.add("after")
        held.run_log.let_go("after")
        assert await held.ran_at("after") == first.name, "its slots are free again"
    await nothing_is_noted(docket)


async def test_a_busy_worker_makes_room_for_a_suspect(docket: Docket) -> None:
    held = HeldTasks(docket)
    async with worker_at_work(docket, concurrency=5):
        await held.add("long")
        await held.run_log.has("long")
        await held.add_suspect("suspect")
        await eventually(lambda: reserved(docket), "it is reserved")
        for n in range(4):
            await held.add(f"plain-{n}")
            held.run_log.let_go(f"plain-{n}")
        held.run_log.let_go("long")
        await held.run_log.has("suspect")
        assert held.run_log.now == {"suspect"}
        assert held.run_log.began == ["long", "suspect"]
        held.run_log.let_go("suspect")
        await held.run_log.has(*(f"plain-{n}" for n in range(4)))
    await nothing_is_noted(docket)


async def test_a_worker_that_cannot_make_room_goes_on_with_its_work(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "RESERVED_SECONDS", 0.3)
    held = HeldTasks(docket)
    async with worker_at_work(docket, concurrency=5):
        await held.add("long")
        await held.run_log.has("long")
        await held.add_suspect("suspect")
        await eventually(lambda: reserved(docket), "it is reserved")
        await held.add("plain")
        await held.run_log.has("plain")
        assert "suspect" not in held.run_log.began
        held.run_log.let_go("plain", "long")
        await held.run_log.has("suspect")
        held.run_log.let_go("suspect")
        assert await held.ran_at("suspect")
    await nothing_is_noted(docket)


@pytest.mark.usefixtures("processes_of_their_own")
async def test_a_worker_that_stops_leaves_what_it_has_reserved_to_another(docket: Docket) -> None:
    held = HeldTasks(docket)
    async with Worker(docket, name="stopping", concurrency=5) as stopping:
        working = asyncio.create_task(stopping.run_forever())
        await held.add("long")
        await held.run_log.has("long")
        await held.add_suspect("suspect")
        await eventually(lambda: reserved(docket), "it is reserved")
        async with worker_at_work(docket) as other:
            stopping.stop()
            await held.run_log.has("suspect")
            held.run_log.let_go("suspect")
            assert await held.ran_at("suspect") == other.name
            held.run_log.let_go("long")
            await working
    await nothing_is_noted(docket)


async def test_a_suspect_that_is_cancelled_while_it_runs_alone_frees_the_worker(docket: Docket) -> None:
    held = HeldTasks(docket)
    async with worker_at_work(docket, concurrency=3):
        await held.add_suspect("suspect")
        await held.run_log.has("suspect")
        await docket.cancel("suspect")
        await held.add("plain")
        await held.run_log.has("plain")
        held.run_log.let_go("plain")
    execution = await docket.get_execution("suspect")
    assert execution is not None
    assert execution.state is ExecutionState.CANCELLED
    await nothing_is_noted(docket)


async def test_a_worker_with_one_slot_runs_suspects_too(docket: Docket) -> None:
    held = HeldTasks(docket)
    held.run_log.let_go("suspect", "plain")
    await held.add_suspect("suspect")
    await held.add("plain")
    async with worker_at_work(docket, concurrency=1):
        await held.run_log.has("suspect", "plain")
    await nothing_is_noted(docket)


# One process, several workers


async def flags_of(docket: Docket, key: str) -> int:
    """Those of its run."""
    async with docket.redis() as redis:
        record = await redis.hget(docket.key("running"), key)  # pyright: ignore[reportArgumentType]
    assert isinstance(record, bytes)
    return record[28]


async def test_a_suspect_has_the_whole_process_to_itself(docket: Docket) -> None:
    """Two workers in one process: one of them begins nothing while the other runs a suspect."""
    held = HeldTasks(docket)
    async with worker_at_work(docket, concurrency=3), worker_at_work(docket, concurrency=3):
        await held.add_suspect("suspect")
        await held.run_log.has("suspect")
        assert await flags_of(docket, "suspect") & ALONE
        for n in range(4):
            await held.add(f"plain-{n}")
        # A process of its own is not held up.
        async with elsewhere(docket, concurrency=3):
            await eventually(lambda: len(held.run_log.began) == 4, "three of them run there")
            assert held.run_log.now >= {"suspect"}
            held.run_log.let_go(*(f"plain-{n}" for n in range(4)))
            await held.run_log.has(*(f"plain-{n}" for n in range(4)))
            assert "suspect" in held.run_log.now
        await held.add("after")
        held.run_log.let_go("suspect", "after")
        assert await held.ran_at("after")
    await nothing_is_noted(docket)


async def test_a_suspect_waits_until_the_other_worker_of_the_process_is_done(docket: Docket) -> None:
    held = HeldTasks(docket)
    async with worker_at_work(docket, concurrency=2), worker_at_work(docket, concurrency=2):
        await held.add("long")
        await held.run_log.has("long")
        await held.add_suspect("suspect")
        await eventually(lambda: reserved(docket), "one of them reserves it")
        assert "suspect" not in held.run_log.began
        held.run_log.let_go("long")
        await held.run_log.has("suspect")
        assert await flags_of(docket, "suspect") & ALONE
        held.run_log.let_go("suspect")
        assert await held.ran_at("suspect")
    await nothing_is_noted(docket)


async def test_after_its_time_a_suspect_shares_its_worker_and_is_not_to_blame(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, waits = HeldTasks(docket), asyncio.Event()
    seconds: list[float] = []

    async def passes(alone: isolation.Isolation, time: float, *args: Any) -> None:
        seconds.append(time)
        await waits.wait()
        await open_after(alone, 0.0, *args)

    open_after = isolation.Isolation._open_after  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(isolation.Isolation, "_open_after", passes)
    async with worker_at_work(docket, concurrency=3):
        await held.add_suspect("suspect")
        await held.run_log.has("suspect")
        await held.add("plain")
        await eventually(lambda: bool(seconds), "its time is known")
        assert seconds == [60.0], "the least time"
        assert await flags_of(docket, "suspect") & ALONE
        assert "plain" not in held.run_log.began
        waits.set()
        await held.run_log.has("plain")
        assert not await flags_of(docket, "suspect") & ALONE
        assert held.run_log.now == {"suspect", "plain"}
        held.run_log.let_go("plain", "suspect")
        assert await held.ran_at("suspect")
    await nothing_is_noted(docket)


def test_a_body_that_was_left_behind_is_seen_by_other_workers_of_the_process() -> None:
    process, mine, others = ProcessRuns(), Runs(), Runs()
    process.add(mine)
    process.add(others)
    assert not process.any_lives()
    body = Run("k", b"", 1, 0.0)
    others.add(body)
    assert process.others_live(mine)
    assert not process.others_live(others)
    assert not process.any_ignores_its_cancel()
    body.cancel(CancelReason.SHUTDOWN)
    assert process.any_ignores_its_cancel()
    body.over = True
    assert not process.any_lives()


def test_one_worker_at_a_time_has_the_process_to_itself() -> None:
    process, first, second = ProcessRuns(), Runs(), Runs()
    assert process.reserve(first)
    assert process.reserve(first)
    assert process.keeps_out(second)
    assert not process.keeps_out(first)
    assert not process.reserve(second)
    process.release(second)
    assert process.keeps_out(second)
    process.release(first)
    assert process.reserve(second)
    del second
    assert not process.keeps_out(first), "a worker that is gone keeps nobody out"


# Slots


def test_reserved_slots_are_not_free_until_they_are_released() -> None:
    slots = Slots(4)
    slots.take()
    slots.reserve_all()
    assert slots.free == 0
    slots.give_back()
    assert slots.free == 0
    slots.release()
    assert (slots.free, slots.are_reserved) == (4, False)


def test_slots_reserved_for_one_run_are_free_when_that_has_given_its_own_back() -> None:
    slots = Slots(4)
    slots.reserve_all(leave=1)
    assert slots.free == 1
    slots.take()
    assert (slots.free, slots.are_reserved) == (0, True)
    slots.give_back()
    assert (slots.free, slots.are_reserved) == (4, False)


async def test_a_worker_keeps_itself_free_for_longer_each_time_it_could_not_make_room(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "RESERVED_SECONDS", 0.05)
    runs = Runs()
    long = Run("long", b"", 1, 0.0)
    runs.add(long)
    alone = isolation.Isolation(docket.ledger, Slots(5), runs, lambda: None, ProcessRuns())

    async def reserve_and_drain() -> tuple[float, bool]:
        alone.notes.reserved = Entry(True, "1-1", b"suspect")
        alone.apply_notes()
        seconds = alone.seconds_left
        drained = await alone.drain()
        alone.release()
        return seconds, drained

    (first, first_drained), (second, _), (third, _) = [await reserve_and_drain() for _ in range(3)]
    assert not first_drained
    assert 0 < first <= 0.05 < second <= 0.1 < third <= 0.2
    runs.remove(long)
    assert (await reserve_and_drain())[1]
    seconds, _ = await reserve_and_drain()
    assert seconds <= 0.05


async def test_a_claim_that_comes_while_another_worker_has_the_process_keeps_no_slot(docket: Docket) -> None:
    async with worker_at_work(docket, concurrency=2) as worker:
        slots, other = worker.staff.slots, Runs()
        received = worker.staff.fetcher._intake  # pyright: ignore[reportPrivateUsage]
        process = received.process
        await eventually(lambda: worker.staff.fetcher.has_offer, "the worker offers a slot")
        assert process.reserve(other)
        try:
            free = slots.free
            await received.receive(worker.id, [Delivery("k", b"", 1, 0.0)])
            assert slots.free == free
        finally:
            process.release(other)
