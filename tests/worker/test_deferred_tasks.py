"""A task that a worker cannot read, but another worker may, goes back more slowly each time, and
with one line in the log."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from datetime import timedelta

import pytest

from docket import Docket, Keyring, Worker
from docket.storage.records import read_task
from docket.storage.schema.records import TASK_HEADER
from docket.worker.claiming import deferred_tasks
from docket.worker.claiming.deferred_tasks import LONGEST_PACE_MS, MOST_REASONS, DeferredTasks
from docket.worker.running.runs import Slots
from tests.running import worker_at_work
from tests.waiting import WAIT_LIMIT, ends, eventually, within

KEYS = Keyring({"new": b"n" * 32})

ran: list[int] = []


async def work(number: int) -> None:
    ran.append(number)


async def set_version(docket: Docket, key: str, version: int) -> None:
    """Makes the record one of another release."""
    record = bytearray(await docket.server.client.hget(docket.keys.tasks, key))
    record[TASK_HEADER.at("version")] = version
    await docket.server.client.hset(docket.keys.tasks, key, bytes(record))


async def due_ms(docket: Docket, key: str) -> float:
    return read_task(await docket.server.client.hget(docket.keys.tasks, key)).due_ms


async def test_a_record_of_a_newer_release_waits_longer_each_time_and_is_logged_once(
    docket: Docket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferred_tasks, "FIRST_MS", 20)
    ran.clear()
    docket.register(work)
    dues: list[float] = []

    async def seen(times: int) -> bool:
        due = await due_ms(docket, execution.key)
        if not dues or due != dues[-1]:
            dues.append(due)
        return len(dues) > times

    with caplog.at_level(logging.WARNING, "docket.worker"):
        execution = await docket.add(work, when=docket.now())(1)
        await set_version(docket, execution.key, 9)
        async with worker_at_work(docket):
            await eventually(lambda: seen(5), "the task has come back five times")
            assert ran == []
            assert caplog.text.count("left for other workers") == 1
            await set_version(docket, execution.key, 1)
            await within(execution.get_result(timeout=WAIT_LIMIT))
    assert ran == [1]
    # Each delay is longer than the one before, so the due times move apart.
    gaps = [after - before for before, after in itertools.pairwise(dues[1:])]
    assert all(gap >= 10 * 2**n for n, gap in enumerate(gaps, 1))


async def test_a_worker_without_the_key_leaves_a_task_to_a_worker_that_has_it(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    ran.clear()
    docket.register(work)
    async with Docket(docket.name, docket.url, signing=KEYS) as signing:
        signing.register(work)
        executions = [await signing.add(work)(number) for number in range(20)]
        with caplog.at_level(logging.WARNING, "docket.worker"):
            async with worker_at_work(docket):
                await eventually(lambda: "left for other workers" in caplog.text, "the worker has left a task")
                async with worker_at_work(signing):
                    await within(asyncio.gather(*(e.get_result(timeout=WAIT_LIMIT) for e in executions)))
    assert sorted(ran) == list(range(20))
    assert caplog.text.count("left for other workers: the payload is sealed with key 'new'") == 1
    assert (await docket.ledger.queries.census()).dead == 0


@pytest.mark.parametrize("problem", ["an unknown key", "a newer release"])
@pytest.mark.parametrize("how", ["run_until_finished", "run_at_most"])
async def test_a_worker_that_has_to_end_says_what_it_cannot_read_and_ends(
    docket: Docket, caplog: pytest.LogCaptureFixture, how: str, problem: str
) -> None:
    ran.clear()
    docket.register(work)
    keys = KEYS if problem == "an unknown key" else None
    async with Docket(docket.name, docket.url, signing=keys) as other:
        executions = [await other.add(work)(number) for number in range(3)]
    if keys is None:
        for execution in executions:
            await set_version(docket, execution.key, 9)
    readable = await docket.add(work)(7)
    async with Worker(docket) as worker:
        with caplog.at_level(logging.WARNING, "docket.worker"):
            await ends(worker.run_until_finished() if how == "run_until_finished" else worker.run_at_most({}))
    await readable.get_result(timeout=WAIT_LIMIT)
    assert ran == [7]
    (error,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert error.startswith("3 tasks are left that this worker cannot read")
    # They are not lost: a worker that can read them runs them.
    assert (await docket.ledger.queries.census()).unfinished == 3


async def test_a_worker_that_has_to_end_waits_for_tasks_that_it_can_read(docket: Docket) -> None:
    ran.clear()
    docket.register(work)
    async with Docket(docket.name, docket.url, signing=KEYS) as signing:
        unreadable = await signing.add(work)(1)
    readable = await docket.add(work, when=docket.now() + timedelta(seconds=3))(2)
    async with Worker(docket) as worker:
        await ends(worker.run_until_finished())
    assert ran == [2]
    assert await readable.get_result(timeout=WAIT_LIMIT) is None
    assert unreadable.key


async def test_a_worker_that_has_to_end_leaves_what_it_cannot_read_to_a_worker_that_can(docket: Docket) -> None:
    ran.clear()
    docket.register(work)
    async with Docket(docket.name, docket.url, signing=KEYS) as signing:
        signing.register(work)
        executions = [await signing.add(work)(number) for number in range(5)]
        async with worker_at_work(signing), Worker(docket) as worker:
            await ends(worker.run_until_finished())
        assert sorted(ran) == list(range(5))
        for execution in executions:
            await execution.get_result(timeout=WAIT_LIMIT)


def test_the_delay_of_a_task_doubles_up_to_a_minute() -> None:
    left = DeferredTasks(Slots(10))

    longest = [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
    assert all(delay / 2 <= left.delay_ms("a", "r") <= delay for delay in longest)


def test_very_many_tasks_are_spread_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    left = DeferredTasks(Slots(10))

    delays = [left.delay_ms(str(n), "r") for n in range(200_000)]
    assert 500 <= delays[0] <= 1000
    assert max(delays) == LONGEST_PACE_MS
    busiest = max(
        sum(1 for delay in delays[:100_000] if begin <= delay < begin + 1000) for begin in range(2000, 9000, 1000)
    )
    assert busiest <= 201


def test_an_attacker_who_invents_reasons_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    left = DeferredTasks(Slots(10))
    with caplog.at_level(logging.WARNING, "docket.worker"):
        for n in range(1000):
            left.delay_ms("a", f"reason {n}")
    assert len(caplog.records) == MOST_REASONS
