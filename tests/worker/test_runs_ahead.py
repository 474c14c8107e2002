"""Runs that are sent ahead to a busy child (docs/design/processes.md, "Runs sent ahead")."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from docket import Docket, Execution, ExecutionCancelled, ProcessLost, Worker
from tests.running import worker_at_work
from tests.waiting import WAIT_LIMIT, eventually

from . import process_tasks as tasks

Counted = list[tuple[Execution[tuple[int, int]], Path]]


async def add_counted(docket: Docket, folder: Path, count: int) -> Counted:
    files = [folder / f"starts-{number}" for number in range(count)]
    return [(await docket.add(tasks.counted)(str(file)), file) for file in files]


async def check_each_ran_once(added: Counted) -> list[int]:
    """Returns the processes in which they ran."""
    pids: list[int] = []
    for execution, file in added:
        pid, attempt = await execution.get_result(timeout=WAIT_LIMIT)
        assert (attempt, file.read_text()) == (1, "begun\n")
        pids.append(pid)
    return pids


def starts_in(folder: Path) -> list[str]:
    return [file.read_text() for file in folder.iterdir()]


def runs_of(worker: Worker) -> list[int]:
    """How many runs each child has, those sent ahead included."""
    return [len(child.runs) for child in worker.staff.children._busy]


async def busy_with(docket: Docket, worker: Worker, folder: Path, counted: int) -> tuple[Execution[Any], int, Counted]:
    """A child that runs `waits_for`, with two runs behind it, and others that wait."""
    first = await docket.add(tasks.waits_for)(str(folder / "pid"), str(folder / "gate"))
    await eventually(lambda: (folder / "pid").exists() and (folder / "pid").read_text(), "the first has begun")
    # As if it had begun just now, since nothing is sent behind a long run.
    worker.staff.children._busy[0].runs.began_at += 3600
    added = await add_counted(docket, folder, counted)
    await eventually(lambda: runs_of(worker) == [3], "two runs were sent ahead", seen=lambda: runs_of(worker))
    return first, int((folder / "pid").read_text()), added


async def test_a_child_gets_its_next_runs_before_the_present_one_has_ended(docket: Docket, tmp_path: Path) -> None:
    async with worker_at_work(docket, cpu_processes=1) as worker:
        first, pid, added = await busy_with(docket, worker, tmp_path, 5)
        assert not any(file.exists() for _, file in added)
        (tmp_path / "gate").touch()
        assert await first.get_result(timeout=WAIT_LIMIT) == pid
        assert set(await check_each_ran_once(added)) == {pid}


async def test_a_crash_costs_the_runs_behind_it_nothing(docket: Docket, tmp_path: Path) -> None:
    async with worker_at_work(docket, cpu_processes=1) as worker:
        first, pid, added = await busy_with(docket, worker, tmp_path, 5)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ProcessLost):
            await first.get_result(timeout=WAIT_LIMIT)
        assert pid not in await check_each_ran_once(added)


async def test_many_crashes_in_a_row_cost_the_runs_behind_them_nothing(docket: Docket, tmp_path: Path) -> None:
    """More than a run may try children that die before they begin it."""
    async with worker_at_work(docket, cpu_processes=1, concurrency=20):
        crashes = [await docket.add(tasks.exits)() for _ in range(4)]
        added = await add_counted(docket, tmp_path, 3)
        for execution in crashes:
            with pytest.raises(ProcessLost):
                await execution.get_result(timeout=WAIT_LIMIT)
        await check_each_ran_once(added)


async def test_a_cancel_costs_the_runs_behind_it_nothing(docket: Docket, tmp_path: Path) -> None:
    async with worker_at_work(docket, cpu_processes=1) as worker:
        first, pid, added = await busy_with(docket, worker, tmp_path, 5)
        await docket.cancel(first.key)
        with pytest.raises(ExecutionCancelled):
            await first.get_result(timeout=WAIT_LIMIT)
        assert pid not in await check_each_ran_once(added)


async def test_timeouts_cost_the_runs_behind_them_nothing(docket: Docket, tmp_path: Path) -> None:
    async with worker_at_work(docket, cpu_processes=1, concurrency=20):
        spinning: list[Execution[None]] = []
        added: Counted = []
        for number in range(4):
            spinning.append(await docket.add(tasks.spins)(str(tmp_path / f"spins-{number}")))
            (tmp_path / str(number)).mkdir()
            added += await add_counted(docket, tmp_path / str(number), 2)
        for execution in spinning:
            with pytest.raises(TimeoutError):
                await execution.get_result(timeout=WAIT_LIMIT)
        await check_each_ran_once(added)


async def test_a_run_that_was_sent_ahead_is_cancelled_without_a_word_to_the_child(
    docket: Docket, tmp_path: Path
) -> None:
    async with worker_at_work(docket, cpu_processes=1) as worker:
        first, pid, added = await busy_with(docket, worker, tmp_path, 2)
        cancelled, file = added.pop(0)
        await docket.cancel(cancelled.key)
        with pytest.raises(ExecutionCancelled):
            await cancelled.get_result(timeout=WAIT_LIMIT)
        (tmp_path / "gate").touch()
        assert await first.get_result(timeout=WAIT_LIMIT) == pid
        assert await check_each_ran_once(added) == [pid]
        assert not file.exists()


async def test_a_long_run_does_not_hold_up_those_behind_it(docket: Docket, tmp_path: Path) -> None:
    """The other child takes them as soon as it has nothing to do."""
    async with worker_at_work(docket, cpu_processes=2) as worker:
        second = await docket.add(tasks.waits_for)(str(tmp_path / "other"), str(tmp_path / "other gate"))
        await eventually(lambda: (tmp_path / "other").exists(), "the other child has begun")
        first = await docket.add(tasks.waits_for)(str(tmp_path / "pid"), str(tmp_path / "gate"))
        await eventually(lambda: (tmp_path / "pid").exists(), "the first has begun")
        worker.staff.children._busy[1].runs.began_at += 3600
        added = await add_counted(docket, tmp_path, 2)
        await eventually(lambda: sum(runs_of(worker)) == 4, "two runs were sent ahead", seen=lambda: runs_of(worker))
        (tmp_path / "other gate").touch()
        other = await second.get_result(timeout=WAIT_LIMIT)
        assert set(await check_each_ran_once(added)) == {other}
        (tmp_path / "gate").touch()
        await first.get_result(timeout=WAIT_LIMIT)


async def test_a_child_is_replaced_after_so_many_runs_although_more_are_waiting(docket: Docket, tmp_path: Path) -> None:
    files = [str(tmp_path / str(number)) for number in range(7)]
    async with worker_at_work(docket, cpu_processes=1, concurrency=20):
        executions = await docket.add_many(docket.call(tasks.counted_worn_out)(file) for file in files)
        pids = [await execution.get_result(timeout=WAIT_LIMIT) for execution in executions]
    assert max(pids.count(pid) for pid in set(pids)) == 3
    assert starts_in(tmp_path) == ["begun\n"] * 7


async def test_a_child_that_keeps_too_much_memory_begins_no_run_that_was_sent_ahead(docket: Docket) -> None:
    sizes = [130 * 1024**2, *[1] * 6]
    async with worker_at_work(docket, cpu_processes=1, concurrency=20):
        executions = await docket.add_many(docket.call(tasks.hoards)(size) for size in sizes)
        pids = [await execution.get_result(timeout=WAIT_LIMIT) for execution in executions]
    assert pids.count(pids[0]) == 1
    assert len(set(pids[1:])) == 1
