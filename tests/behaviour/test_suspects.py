"""A task that lost two workers gets a worker to itself, and no worker is held up for long by it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from docket import CurrentWorker, Docket, ExecutionState, TaskKey, Worker
from docket.ledger import Entry
from docket.worker import isolation
from docket.worker.runs import Run, Runs
from docket.worker.slots import Slots

from .limiting import Diary, at_work, eventually

# Where the count of losses is in a task record.
LOSSES_AT = 7


async def suspect(docket: Docket, key: str) -> None:
    """The waiting task has lost two workers."""
    async with docket.redis() as redis:
        record = bytearray(await redis.hget(docket.key("tasks"), key))  # pyright: ignore[reportArgumentType]
        record[LOSSES_AT] = 2
        await redis.hset(docket.key("tasks"), key, bytes(record))


async def reserved(docket: Docket) -> bool:
    async with docket.redis() as redis:
        fields = await redis.hkeys(docket.key("suspects"))
        return any(field.startswith(b"r") for field in fields)


async def nothing_is_noted(docket: Docket) -> None:
    async def empty() -> bool:
        async with docket.redis() as redis:
            return not await redis.hkeys(docket.key("suspects"))

    await eventually(empty, "nothing is noted of suspects")


class Stage:
    """Tasks that tell which worker began them, and go on until they are let go."""

    def __init__(self, docket: Docket) -> None:
        self.docket, self.diary = docket, Diary()

        async def hold(key: str = TaskKey(), worker: Worker = CurrentWorker()) -> str:
            await self.diary.hold(key)
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
            await redis.zadd(self.docket.key("queue"), {key: 1})
        await self.docket.ledger.stage()

    async def ran_at(self, key: str) -> str:
        execution = await self.docket.get_execution(key)
        assert execution is not None
        return await execution.get_result()


async def test_while_a_suspect_runs_its_worker_takes_nothing_else(docket: Docket) -> None:
    stage = Stage(docket)
    async with at_work(docket, concurrency=5) as first:
        await stage.add_suspect("suspect")
        await stage.diary.has("suspect")
        for n in range(5):
            await stage.add(f"plain-{n}")
        async with at_work(docket, concurrency=5):
            await stage.diary.has(*(f"plain-{n}" for n in range(5)))
            # All slots of the other worker are in use: the next has to wait for the suspect.
            await stage.add("next")
            stage.diary.let_go(*(f"plain-{n}" for n in range(4)))
            stage.diary.let_go("next")
            for n in range(4):
                assert await stage.ran_at(f"plain-{n}") != first.name
            stage.diary.let_go("suspect", "plain-4")
            assert await stage.ran_at("suspect") == first.name
        await stage.add("after")
        stage.diary.let_go("after")
        assert await stage.ran_at("after") == first.name, "its slots are free again"
    await nothing_is_noted(docket)


async def test_a_busy_worker_makes_room_for_a_suspect(docket: Docket) -> None:
    stage = Stage(docket)
    async with at_work(docket, concurrency=5):
        await stage.add("long")
        await stage.diary.has("long")
        await stage.add_suspect("suspect")
        await eventually(lambda: reserved(docket), "it is reserved")
        for n in range(4):
            await stage.add(f"plain-{n}")
            stage.diary.let_go(f"plain-{n}")
        stage.diary.let_go("long")
        await stage.diary.has("suspect")
        assert stage.diary.now == {"suspect"}
        assert stage.diary.began == ["long", "suspect"]
        stage.diary.let_go("suspect")
        await stage.diary.has(*(f"plain-{n}" for n in range(4)))
    await nothing_is_noted(docket)


async def test_a_worker_that_cannot_make_room_goes_on_with_its_work(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "RESERVED_SECONDS", 0.3)
    stage = Stage(docket)
    async with at_work(docket, concurrency=5):
        await stage.add("long")
        await stage.diary.has("long")
        await stage.add_suspect("suspect")
        await eventually(lambda: reserved(docket), "it is reserved")
        await stage.add("plain")
        await stage.diary.has("plain")
        assert "suspect" not in stage.diary.began
        stage.diary.let_go("plain", "long")
        await stage.diary.has("suspect")
        stage.diary.let_go("suspect")
        assert await stage.ran_at("suspect")
    await nothing_is_noted(docket)


async def test_a_worker_that_stops_leaves_what_it_has_reserved_to_another(docket: Docket) -> None:
    stage = Stage(docket)
    async with Worker(docket, name="stopping", concurrency=5) as stopping:
        working = asyncio.create_task(stopping.run_forever())
        await stage.add("long")
        await stage.diary.has("long")
        await stage.add_suspect("suspect")
        await eventually(lambda: reserved(docket), "it is reserved")
        async with at_work(docket) as other:
            stopping.stop()
            await stage.diary.has("suspect")
            stage.diary.let_go("suspect")
            assert await stage.ran_at("suspect") == other.name
            stage.diary.let_go("long")
            await working
    await nothing_is_noted(docket)


async def test_a_suspect_that_is_cancelled_while_it_runs_alone_frees_the_worker(docket: Docket) -> None:
    stage = Stage(docket)
    async with at_work(docket, concurrency=3):
        await stage.add_suspect("suspect")
        await stage.diary.has("suspect")
        await docket.cancel("suspect")
        await stage.add("plain")
        await stage.diary.has("plain")
        stage.diary.let_go("plain")
    execution = await docket.get_execution("suspect")
    assert execution is not None
    assert execution.state is ExecutionState.CANCELLED
    await nothing_is_noted(docket)


async def test_a_worker_with_one_slot_runs_suspects_too(docket: Docket) -> None:
    stage = Stage(docket)
    stage.diary.let_go("suspect", "plain")
    await stage.add_suspect("suspect")
    await stage.add("plain")
    async with at_work(docket, concurrency=1):
        await stage.diary.has("suspect", "plain")
    await nothing_is_noted(docket)


# Slots


def test_held_slots_are_not_free_until_they_are_released() -> None:
    slots = Slots(4)
    slots.take()
    slots.hold()
    assert slots.free == 0
    slots.give_back()
    assert slots.free == 0
    slots.release()
    assert (slots.free, slots.are_held) == (4, False)


def test_slots_held_for_one_run_are_free_when_that_has_given_its_own_back() -> None:
    slots = Slots(4)
    slots.hold(leave=1)
    assert slots.free == 1
    slots.take()
    assert (slots.free, slots.are_held) == (0, True)
    slots.give_back()
    assert (slots.free, slots.are_held) == (4, False)


async def test_a_worker_keeps_itself_free_for_longer_each_time_it_could_not_make_room(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "RESERVED_SECONDS", 0.05)
    runs = Runs()
    long = Run("long", b"", 1, 0.0)
    runs.add(long)
    alone = isolation.Isolation(docket.ledger, Slots(5), runs, lambda: None)

    async def reserve_and_drain() -> tuple[float, bool]:
        alone.notes.reserved = Entry(True, "1-1", b"suspect")
        alone.heed()
        seconds = alone.seconds_left
        drained = await alone.drain()
        alone.release()
        return seconds, drained

    (first, in_vain), (second, _), (third, _) = [await reserve_and_drain() for _ in range(3)]
    assert not in_vain
    assert 0 < first <= 0.05 < second <= 0.1 < third <= 0.2
    runs.remove(long)
    assert (await reserve_and_drain())[1]
    seconds, _ = await reserve_and_drain()
    assert seconds <= 0.05
