"""Limits hold while workers die, pause and have wrong
clocks; nothing is lost and no slot is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio

from docket import Docket, ExecutionState
from docket.errors import DocketError
from tests.waiting import eventually

from .conftest import Harness
from .limited_tasks import Note, limited_tasks, note, read_notes, slots
from .processes import LEASE, Process

VALUES, TASKS, LIMIT = 5, 200, 2


class Fleet:
    """Worker processes that come and go, and the notes of what their tasks did."""

    def __init__(self, harness: Harness, client: Any) -> None:
        self._harness = harness
        self._client = client
        self._numbers = itertools.count()
        self.workers: list[Process] = []
        self._names: dict[int, Any] = {}

    def hire(self, *, concurrency: int = 10, clock_seconds: float = 0.0) -> Process:
        settings = {
            "docket": self._harness.name,
            "url": self._harness.url,
            "name": f"fleet-{next(self._numbers)}",
            "tasks": ["tests.faults.limited_tasks:limited_tasks"],
            "concurrency": concurrency,
            "lease": LEASE,
            "grace": 60.0,
            "clock_seconds": clock_seconds,
        }
        worker = self._harness.process(["-m", "tests.faults.program", json.dumps(settings)])
        self._names[worker.pid] = settings["name"]
        self.workers.append(worker)
        return worker

    async def at_work(self, docket: Docket, count: int) -> None:
        async def present() -> bool:
            ended = [worker for worker in self.workers if worker.exit_code is not None]
            assert not ended, f"a worker ended:\n{ended[0].output[-3000:]}"
            return len(await docket.workers()) >= count

        await eventually(present, f"{count} workers work")

    async def lose_one(self, docket: Docket) -> None:
        """Kills one. What it ran is over from here, whatever its notes say.

        Not one that runs a task which has lost two workers
        already: a third loss would bury that task, as it should.
        """
        for worker in random.sample(self.workers, len(self.workers)):
            # It must not take such a task while it is looked at.
            worker.pause()
            if not await self._runs_endangered(docket, worker):
                self.workers.remove(worker)
                worker.kill()
                await worker.ended()
                await note("killed", "-", "-", worker.pid, self._client)
                return
            worker.wake()

    async def _runs_endangered(self, docket: Docket, worker: Process) -> bool:
        """Whether it runs a task that has lost two workers. Its last requests may still arrive."""
        for _ in range(2):
            await asyncio.sleep(0.05)
            for run in (await docket.snapshot()).running:
                if run.worker == self._names[worker.pid] and run.record is not None and run.record.losses >= 2:
                    return True
        return False

    async def notes(self) -> list[Note]:
        return read_notes(await self._client.lrange("limits", 0, -1))


@pytest.fixture
async def fleet(harness: Harness) -> AsyncIterator[Fleet]:
    async with redis.asyncio.Redis.from_url(harness.reports.url) as client:
        yield Fleet(harness, client)


def most_at_once(notes: list[Note]) -> dict[str, int]:
    """For each group, how many of its runs went on at a time."""
    going_on: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    most: Counter[str] = Counter()
    for n in notes:
        if n.what == "begin":
            going_on[n.group].add((n.key, n.pid))
            most[n.group] = max(most[n.group], len(going_on[n.group]))
        elif n.what == "end":
            going_on[n.group].discard((n.key, n.pid))
        else:
            for runs in going_on.values():
                runs -= {run for run in runs if run[1] == n.pid}
    return most


async def states(docket: Docket, keys: list[str]) -> Counter[Any]:
    found = [await docket.get_execution(key) for key in keys]
    return Counter(execution.state if execution else None for execution in found)


async def errors(docket: Docket, keys: list[str]) -> dict[str, str]:
    found = [await docket.get_execution(key) for key in keys]
    return {execution.key: execution.error for execution in found if execution and execution.error}


async def assert_no_slot_is_left(docket: Docket) -> None:
    async with docket.redis() as client:
        keys: Any = await client.keys("*")
    names = {key.decode().removeprefix(f"{docket.prefix}:").partition(":=")[0] for key in keys}
    assert not names & {"slots", "waiters", "limits", "parked", "replaced-runs", "tasks", "running"}, names


async def all_over(docket: Docket) -> bool:
    return (await docket.ledger.queries.census()).unfinished == 0


@pytest.mark.timeout(600)
async def test_limits_hold_and_all_tasks_finish_while_a_worker_is_killed_every_two_seconds(
    harness: Harness, fleet: Fleet
) -> None:
    docket = await harness.docket()
    for _ in range(3):
        fleet.hire()
    await fleet.at_work(docket, 3)
    keys = [f"task-{n}" for n in range(TASKS)]
    await docket.add_many([docket.call(slots, key=key)(n % VALUES, 0.4) for n, key in enumerate(keys)])

    are_over = asyncio.Event()

    async def churn() -> None:
        while not are_over.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await are_over.wait()
                    break
            fleet.hire()
            await fleet.lose_one(docket)

    # Not ended by a cancel: the client of redis may swallow it, and the churn would never end.
    churning = asyncio.create_task(churn())
    try:
        await eventually(lambda: all_over(docket), "all tasks are over")
    finally:
        are_over.set()
        await churning

    notes = await fleet.notes()
    killed = sum(n.what == "killed" for n in notes)
    most = most_at_once(notes)
    assert killed >= 4
    assert most == {str(value): LIMIT for value in range(VALUES)}, most
    failed = await errors(docket, keys)
    assert not failed, (failed, [n for n in notes if n.key in failed or n.what == "killed"])
    assert await states(docket, keys) == {ExecutionState.COMPLETED: TASKS}
    assert {n.key for n in notes if n.what == "end"} == set(keys)
    # A task begins again only if its worker was killed.
    again = Counter(n.key for n in notes if n.what == "begin")
    dead = {n.pid for n in notes if n.what == "killed"}
    for key, times in again.items():
        assert times <= 1 + sum(n.pid in dead for n in notes if n.what == "begin" and n.key == key), key
    await assert_no_slot_is_left(docket)


@pytest.mark.timeout(600)
async def test_a_slot_of_a_paused_worker_is_taken_over_when_it_is_stale_and_not_before(
    harness: Harness, fleet: Fleet
) -> None:
    docket = await harness.docket()
    paused = fleet.hire()
    await fleet.at_work(docket, 1)
    # The client of redis in the body may swallow a cancel: then the run lasts to its end.
    first = [await docket.add(slots)(1, LEASE * 10) for _ in range(LIMIT)]
    await eventually(lambda: _begun(fleet, LIMIT), "both slots are taken")
    fleet.hire()
    await fleet.at_work(docket, 2)
    # A live holder keeps its slot for longer than its lease.
    waiting = await docket.add(slots)(1, 0.1)
    await asyncio.sleep(LEASE * 1.5)
    assert await _begun(fleet, LIMIT)
    assert not await _begun(fleet, LIMIT + 1)

    paused.pause()
    await eventually(lambda: _begun(fleet, LIMIT + 1), "its slots are taken over", LEASE * 4)
    paused.wake()
    for execution in first:
        await docket.cancel(execution.key)
    await waiting.get_result()
    await eventually(lambda: all_over(docket), "all are over")
    await assert_no_slot_is_left(docket)
    # The stale runs noticed it and ended, and their slots were not given back a second time.
    after = [await docket.add(slots)(1, 0.3) for _ in range(6)]
    for execution in after:
        await execution.get_result()
    last = {execution.key for execution in after}
    assert most_at_once([n for n in await fleet.notes() if n.key in last]) == {"1": LIMIT}


async def _begun(fleet: Fleet, count: int) -> bool:
    return sum(n.what == "begin" for n in await fleet.notes()) >= count


@pytest.mark.timeout(600)
async def test_those_in_line_survive_the_loss_of_the_server(harness: Harness, fleet: Fleet) -> None:
    server = harness.server("--appendonly", "yes", "--appendfsync", "always")
    docket = await harness.docket()
    fleet.hire()
    fleet.hire()
    await fleet.at_work(docket, 2)
    keys = [f"task-{n}" for n in range(40)]
    await docket.add_many([docket.call(slots, key=key)(1, 0.2) for key in keys])
    for lost in (5, 15):
        await eventually(lambda lost=lost: _begun(fleet, lost), f"{lost} have begun")
        server.kill()
        server.start()

    async def all_are_over() -> bool:
        # The first question after the loss finds a dead connection.
        with contextlib.suppress(DocketError):
            return await all_over(docket)
        return False

    await eventually(all_are_over, "all are over")
    assert most_at_once(await fleet.notes()) == {"1": LIMIT}
    assert await states(docket, keys) == {ExecutionState.COMPLETED: 40}
    await assert_no_slot_is_left(docket)


@pytest.mark.timeout(600)
async def test_windows_hold_on_workers_with_wrong_clocks(harness: Harness, fleet: Fleet) -> None:
    docket = await harness.docket()
    fleet.hire(clock_seconds=120.0)
    fleet.hire(clock_seconds=-120.0)
    await fleet.at_work(docket, 2)
    for function in limited_tasks:
        docket.register(function)
    rated = await docket.add_many([docket.call("rated")(n) for n in range(12)])
    cooled = await docket.add_many([docket.call("cooled")(n) for n in range(12)])
    await eventually(lambda: all_over(docket), "all are over")

    assert await states(docket, [e.key for e in rated]) == {ExecutionState.COMPLETED: 12}
    assert await states(docket, [e.key for e in cooled]) == {ExecutionState.COMPLETED: 1, ExecutionState.CANCELLED: 11}
    times = [n.at for n in await fleet.notes() if n.group == "rated"]
    # Four windows of a second, told by the server's clock:
    # by the workers' own, all twelve would start at once.
    assert times[-1] - times[0] > 2


@pytest.mark.timeout(600)
async def test_a_debounce_never_ends_in_no_run_when_workers_are_killed(harness: Harness, fleet: Fleet) -> None:
    docket = await harness.docket()
    for _ in range(3):
        fleet.hire(concurrency=5)
    await fleet.at_work(docket, 3)
    for function in limited_tasks:
        docket.register(function)

    async def churn() -> None:
        for _ in range(3):
            await asyncio.sleep(0.7)
            fleet.hire(concurrency=5)
            await fleet.lose_one(docket)

    churning = asyncio.create_task(churn())
    for n in range(8):
        await docket.add_many([docket.call("debounced")(value, n) for value in range(10)])
        await asyncio.sleep(0.15)
    await churning
    await eventually(lambda: all_over(docket), "all are over")

    ended = Counter(n.group for n in await fleet.notes() if n.what == "end")
    for value in range(10):
        runs = {group: count for group, count in ended.items() if group.startswith(f"{value}/")}
        assert runs, f"value {value} had no run"
        assert f"{value}/7" in runs, f"the last submission of value {value} did not run: {runs}"
