"""Somebody writes other data over the keys of a docket. That costs what it hits, and stops nobody
(docs/design/damaged-data.md)."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from docket import Docket, Execution, Worker
from docket.worker.lease import reclaimer
from tests.running import worker_at_work
from tests.waiting import WAIT_LIMIT, eventually

from .damaged_keys import (
    DAMAGES,
    FAMILIES,
    GARBAGE,
    GATE,
    STARTS,
    TYPES,
    fill,
    keys_of,
    limited,
    other_type,
    plain,
    rated,
    register_all,
    waits,
    waits_with_slot,
)

_names = (f"innocent {number}" for number in itertools.count())


async def add_innocent(docket: Docket) -> list[Execution]:
    soon = datetime.now(UTC) + timedelta(milliseconds=20)
    return [
        await docket.add(plain)(next(_names)),
        await docket.add(limited)(next(_names)),
        await docket.add(rated)(next(_names)),
        await docket.add(plain, when=soon)(next(_names)),
    ]


async def all_run_once(innocent: Sequence[Execution]) -> None:
    for execution in innocent:
        name = await execution.get_result(timeout=WAIT_LIMIT)
        assert STARTS[name] == 1, name


async def is_healthy(worker: Worker) -> None:
    await eventually(lambda: worker.health_problem() is None, "the worker is healthy", seen=worker.health_problem)


@pytest.mark.parametrize("family", FAMILIES)
async def test_damage_stops_no_worker_at_work(docket: Docket, family: str) -> None:
    await fill(docket)
    async with docket.redis() as redis, worker_at_work(docket) as worker:
        for damage in DAMAGES.values():
            for key in await keys_of(docket, redis, family):
                await damage(redis, key, TYPES.get(family, "hash"))
            await all_run_once(await add_innocent(docket))
            await is_healthy(worker)


@pytest.mark.parametrize("family", FAMILIES)
async def test_damage_stops_no_worker_that_starts(docket: Docket, family: str) -> None:
    await fill(docket)
    async with docket.redis() as redis:
        for damage in DAMAGES.values():
            for key in await keys_of(docket, redis, family):
                await damage(redis, key, TYPES.get(family, "hash"))
            async with Docket(name=docket.name, url=docket.url) as opened:
                register_all(opened)
                async with worker_at_work(opened) as worker:
                    await all_run_once(await add_innocent(opened))
                    await is_healthy(worker)


@pytest.mark.parametrize("family", FAMILIES)
async def test_damage_stops_no_observer(docket: Docket, family: str) -> None:
    await fill(docket)
    async with docket.redis() as redis:
        for damage in DAMAGES.values():
            for key in await keys_of(docket, redis, family):
                await damage(redis, key, TYPES.get(family, "hash"))
            snapshot = await docket.snapshot()
            for execution in (*snapshot.future, *snapshot.running):
                await docket.why(execution.key)
                await docket.get_execution(execution.key)
            await docket.stats()
            await docket.workers()
            await docket.pauses()
            async for letter in docket.dead.find():
                await docket.why(letter.key)


RUN_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda record: GARBAGE,
    "empty": lambda record: b"",
    "half": lambda record: record[: len(record) // 2],
    "without its last byte": lambda record: record[:-1],
    "with a byte more": lambda record: record + b"x",
    "the length of the worker id is too large": lambda record: record[:29] + b"\xff\xff" + record[31:],
    "the epoch is not a number": lambda record: b"\xff" * 8 + record[8:],
    "the epoch is infinite": lambda record: struct.pack("<d", float("inf")) + record[8:],
    "the entry is negative": lambda record: record[:16] + struct.pack("<d", -1.0) + record[24:],
}
each_damage = pytest.mark.parametrize("damage", RUN_DAMAGES.values(), ids=list(RUN_DAMAGES))


@pytest.fixture(autouse=True)
def frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaimer, "SWEEP_SECONDS", 1.0)
    monkeypatch.setattr(reclaimer, "SWEEP_SECONDS_WHEN_EMPTY", 1.0)


@pytest.fixture
def victims() -> list[str]:
    GATE.close()
    return [next(_names) for _ in range(2)]


async def damage_run(docket: Docket, redis: Any, key: str, damage: Callable[[bytes], bytes]) -> None:
    record = await redis.hget(docket.key("running"), key)
    await redis.hset(docket.key("running"), key, damage(record))


@each_damage
async def test_a_damaged_run_record_costs_only_its_own_run(
    docket: Docket, damage: Callable[[bytes], bytes], victims: list[str]
) -> None:
    """The task runs again when the body has ended, and not beside it; its slot of a limit is free
    for that."""
    register_all(docket)
    plain_one, limited_one = victims
    async with docket.redis() as redis, worker_at_work(docket, concurrency=5):
        damaged = [await docket.add(waits)(plain_one), await docket.add(waits_with_slot)(limited_one)]
        innocent = await docket.add(waits)(name := next(_names))
        await eventually(lambda: all(STARTS[each] == 1 for each in (*victims, name)), "all of them run")
        for execution in damaged:
            await damage_run(docket, redis, execution.key, damage)
        await all_run_once([await docket.add(plain)(next(_names))])
        assert [STARTS[each] for each in victims] == [1, 1]
        GATE.open()
        assert await innocent.get_result(timeout=WAIT_LIMIT) == name
        assert STARTS[name] == 1
        for execution, each in zip(damaged, victims, strict=True):
            assert await execution.get_result(timeout=WAIT_LIMIT) == each
            assert STARTS[each] == 2
        assert await redis.hlen(docket.key("running")) == 0
        last = await docket.add(waits_with_slot)(next(_names))
        await last.get_result(timeout=WAIT_LIMIT)


@each_damage
async def test_a_damaged_run_record_of_a_dead_worker_is_recovered(
    docket: Docket, damage: Callable[[bytes], bytes], victims: list[str]
) -> None:
    register_all(docket)
    GATE.open()
    execution = await docket.add(waits)(victims[0])
    ledger = docket.ledger
    await ledger.fleet.register("dead~1", 1, [], {}, {})
    taken = await ledger.deliveries.take("dead~1", '"dead"', 1)
    assert taken
    async with docket.redis() as redis:
        await damage_run(docket, redis, execution.key, damage)
        async with worker_at_work(docket):
            assert await execution.get_result(timeout=WAIT_LIMIT) == victims[0]
    assert STARTS[victims[0]] == 1


@each_damage
@pytest.mark.parametrize("verb", ["cancel", "replace"])
async def test_a_task_with_a_damaged_run_record_can_be_changed(
    docket: Docket, damage: Callable[[bytes], bytes], victims: list[str], verb: str
) -> None:
    register_all(docket)
    async with docket.redis() as redis, worker_at_work(docket):
        execution = await docket.add(waits)(victims[0])
        await eventually(lambda: STARTS[victims[0]] == 1, "it runs")
        await damage_run(docket, redis, execution.key, damage)
        if verb == "cancel":
            await docket.cancel(execution.key)
        else:
            replacement = await docket.replace(plain, datetime.now(UTC), execution.key)(victims[1])
            assert await replacement.get_result(timeout=WAIT_LIMIT) == victims[1]
        GATE.open()
        await all_run_once(await add_innocent(docket))
        assert not await redis.hexists(docket.key("tasks"), execution.key)


async def test_what_is_set_aside_is_kept_for_a_week_and_logged_once(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    register_all(docket)
    async with docket.redis() as redis, worker_at_work(docket):
        for key in ("fleet", "scheduled"):
            await other_type(redis, docket.key(key), "hash")
        await all_run_once(await add_innocent(docket))
        for key in ("fleet", "scheduled"):
            kept = docket.key(f"damaged:={key}")

            async def is_kept(kept: str = kept) -> bool:
                return await redis.get(kept) == GARBAGE

            await eventually(is_kept, f"{key} is set aside")
            assert 600_000 < await redis.ttl(kept) <= 604_800
    lines = [record.getMessage() for record in caplog.records if "did not write" in record.getMessage()]
    assert len(lines) == 2
    assert any(docket.key("fleet") in line for line in lines)


async def test_a_stream_that_was_overwritten_is_filled_again(docket: Docket) -> None:
    """The tasks are still there: the sweep finds them."""
    register_all(docket)
    waiting = [await docket.add(plain)(next(_names)) for _ in range(3)]
    async with docket.redis() as redis:
        await other_type(redis, docket.key("stream"), "stream")
        async with worker_at_work(docket):
            await all_run_once(waiting)


async def test_the_keys_of_another_program_are_left_alone(docket: Docket) -> None:
    async with docket.redis() as redis:
        await redis.set(docket.key("queue"), b"of another program")
        async with worker_at_work(docket):
            register_all(docket)
            await all_run_once(await add_innocent(docket))
        assert await redis.get(docket.key("queue")) == b"of another program"
