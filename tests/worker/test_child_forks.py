"""A function in a child may fork, and start processes of its own. The copies are not children of
the worker: they answer for no run, and take no run from another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from docket import Docket
from tests.running import worker_at_work
from tests.waiting import WAIT_LIMIT, eventually

from . import fork_tasks
from . import process_tasks as tasks
from .test_processes import is_alive, pid_in, result_of


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (fork_tasks.copy_returns_first, "the function"),
        (fork_tasks.copy_exits, "the copy ended with 3"),
        (fork_tasks.copy_raises, "the copy ended with 1"),
        (fork_tasks.async_copy_returns, "the copy ended with 0"),
    ],
)
async def test_a_copy_does_not_answer_for_the_run(docket: Docket, function: Any, result: str) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        assert await (await docket.add(function)()).get_result(timeout=WAIT_LIMIT) == result
        # The child still answers for its own runs, in their order.
        for number in range(3):
            found = await (await docket.add(tasks.where)(number)).get_result(timeout=WAIT_LIMIT)
            assert found[0] == number


async def test_a_copy_that_outlives_its_run_takes_no_other_run(docket: Docket, tmp_path: Path) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        first = await docket.add(fork_tasks.copy_outlives_the_run)(str(tmp_path / "end"))
        copy = await first.get_result(timeout=WAIT_LIMIT)
        assert is_alive(copy)
        pids = {(await (await docket.add(tasks.where)()).get_result(timeout=WAIT_LIMIT))[1] for _ in range(20)}
        assert copy not in pids
        (tmp_path / "end").touch()
        await eventually(lambda: not is_alive(copy), "the copy has ended")
        _, pid, _ = await (await docket.add(tasks.where)()).get_result(timeout=WAIT_LIMIT)
        assert {pid} == pids


async def test_a_copy_is_told_that_it_has_no_worker(docket: Docket) -> None:
    problems = await result_of(docket, fork_tasks.copy_uses_the_worker)
    assert len(problems) == 2
    assert all("forked" in problem for problem in problems)


async def test_processes_of_the_function_can_be_ended(docket: Docket) -> None:
    """The child ignores SIGTERM and SIGINT. The processes that its function starts do not."""
    assert await result_of(docket, fork_tasks.ends_a_process_of_its_own) == -15
    assert await result_of(docket, fork_tasks.interrupts_a_program) == -2


async def test_a_timeout_also_ends_the_programs_that_the_function_started(docket: Docket, tmp_path: Path) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        execution = await docket.add(fork_tasks.waits_for_a_program)(str(tmp_path / "pid"))
        program = await pid_in(tmp_path / "pid")
        with pytest.raises(TimeoutError):
            await execution.get_result(timeout=WAIT_LIMIT)
        await eventually(lambda: not is_alive(program), "the program has ended")


async def test_a_thread_that_outlives_its_run_reports_nothing_for_the_next_run(docket: Docket, tmp_path: Path) -> None:
    file = str(tmp_path / "report")
    async with worker_at_work(docket, cpu_processes=1):
        await (await docket.add(fork_tasks.reports_from_a_thread_later)(file)).get_result(timeout=WAIT_LIMIT)
        execution = await docket.add(fork_tasks.asks_for_a_late_report)(file)
        await execution.get_result(timeout=WAIT_LIMIT)
        await execution.progress.sync()
        assert execution.progress.message == "of this run"
