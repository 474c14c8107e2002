"""Pauses and resumes while workers and servers die (docs/design/pause.md)."""

from __future__ import annotations

import asyncio
from collections import Counter

from docket import Docket
from tests.waiting import WAIT_LIMIT, eventually

from . import tasks
from .conftest import Harness


async def held(docket: Docket, count: int) -> None:
    async def are_held() -> bool:
        return sum(pause.held for pause in await docket.pauses()) == count

    await eventually(are_held, f"{count} tasks are held")


async def unpaused(docket: Docket) -> None:
    async def is_gone() -> bool:
        return await docket.pauses() == []

    await eventually(is_gone, "no pause is left")


async def test_a_task_whose_worker_is_killed_during_a_pause_is_held_and_runs_after_it(harness: Harness) -> None:
    docket = await harness.docket()
    victim = harness.worker_process()
    await harness.at_work(docket, victim)
    execution = await docket.add(tasks.hold, key="task")("go")
    await harness.started("task")
    await docket.pause(tasks.hold)
    survivor = harness.worker_process()
    await harness.at_work(docket, survivor)
    victim.kill()
    await held(docket, 1)
    assert harness.reports.count("start") == 1, "it does not start while it is held"
    harness.reports.release("go")
    assert await docket.resume(tasks.hold) == 1
    assert await execution.get_result(timeout=WAIT_LIMIT) == str(survivor.pid)
    assert harness.reports.count("start") == 2


async def test_another_worker_finishes_a_resume_when_the_one_that_releases_is_killed(harness: Harness) -> None:
    docket = await harness.docket()
    workers = [harness.worker_process(concurrency=20) for _ in range(3)]
    await harness.at_work(docket, *workers)
    await docket.pause(tasks.nap)
    await docket.add_many([docket.call(tasks.nap, key=str(n))(0.01) for n in range(3_000)])
    await held(docket, 3_000)
    assert harness.reports.count("start") == 0
    await docket.resume(tasks.nap)
    for victim in workers[:2]:
        before = harness.reports.count("finish")
        await eventually(lambda: harness.reports.count("finish") > before + 100, "the tasks go on")  # noqa: B023
        victim.kill()
    await eventually(lambda: len({r.key for r in harness.reports.read("finish")}) == 3_000, "all tasks have run")
    await unpaused(docket)
    starts = Counter(report.key for report in harness.reports.read("start"))
    again = [key for key, count in starts.items() if count > 1]
    assert len(again) <= 2 * 20 * 3, "only tasks that ran, or were claimed, when their worker was killed"

    async def all_settled() -> bool:
        return (await docket.ledger.queries.census()).unfinished == 0

    await eventually(all_settled, "nothing is left")


async def test_held_tasks_survive_a_server_that_is_killed(harness: Harness) -> None:
    server = harness.server("--appendonly", "yes", "--appendfsync", "always")
    docket = await harness.docket()
    worker = harness.worker_process()
    await harness.at_work(docket, worker)
    await docket.pause(tasks.nap)
    await docket.pause("*", "seconds", "==", 1)
    await docket.add_many([docket.call(tasks.nap, key=str(n))(0) for n in range(300)])
    await held(docket, 300)
    server.kill()
    server.start()

    async def answers() -> bool:
        try:
            return [pause.held for pause in await docket.pauses()] == [300, 0]
        except ConnectionError:
            return False

    await eventually(answers, "the server is back, with the pauses and the held tasks")
    assert await docket.resume(tasks.nap) == 300
    await eventually(lambda: harness.reports.count("finish") == 300, "all run")
    assert harness.reports.count("start") == 300


async def test_a_paused_worker_process_does_not_start_what_was_paused_in_the_meantime(harness: Harness) -> None:
    """It wakes within its lease, with tasks of the function in its hands that it had not begun."""
    docket = await harness.docket(lease=120.0)
    worker = harness.worker_process(concurrency=1, lease=120.0)
    await harness.at_work(docket, worker)
    blocker = await docket.add(tasks.hold, key="blocker")("go")
    await harness.started("blocker")
    await docket.add_many([docket.call(tasks.nap, key=str(n))(0) for n in range(50)])
    worker.pause()
    stored = await docket.pause(tasks.nap)
    worker.wake()
    harness.reports.release("go")
    await blocker.get_result(timeout=WAIT_LIMIT)
    await held(docket, 50)
    assert (stored.held, harness.reports.count("start")) == (0, 1)
    await docket.resume(stored)
    await eventually(lambda: harness.reports.count("finish") == 51, "all run")


async def test_pausing_and_resuming_under_load_loses_nothing_and_repeats_nothing(harness: Harness) -> None:
    docket = await harness.docket()
    workers = [harness.worker_process(concurrency=10) for _ in range(2)]
    await harness.at_work(docket, *workers)
    keys: list[str] = []

    async def produce() -> None:
        for batch in range(40):
            calls = [docket.call(tasks.nap, key=f"{batch}-{n}")(0) for n in range(25)]
            keys.extend(call.key for call in calls)
            await docket.add_many(calls)
            await asyncio.sleep(0.02)

    async def operate() -> None:
        for rule in [(tasks.nap,), ("*",), ("*", "seconds", "==", 0), (tasks.nap, "seconds", "<", 1)] * 3:
            await docket.pause(*rule)
            await asyncio.sleep(0.05)
            await docket.resume(*rule)

    await asyncio.gather(produce(), operate())
    await eventually(lambda: harness.reports.count("finish") == len(keys), "all tasks have run")
    assert Counter(report.key for report in harness.reports.read("start")) == Counter(keys)
    await unpaused(docket)
