"""A worker that cannot start a child does not fail the tasks that need one: it leaves them."""

from __future__ import annotations

import errno
import logging
import os
import subprocess

import pytest

from docket import Docket, ExecutionState, ProcessLost
from docket.child.settings import ChildSettings
from docket.worker.children.child_process import ChildProcess
from docket.worker.children.child_runs import NeverBegan
from docket.worker.claiming import deferred_tasks
from tests.running import worker_at_work
from tests.waiting import WAIT_LIMIT, eventually

from . import process_tasks as tasks


async def test_a_worker_that_cannot_start_a_child_fails_no_task(
    docket: Docket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deferred_tasks, "FIRST_MS", 20)
    spawn, refusals = ChildProcess._spawn, list[int]()

    def refuse(child: ChildProcess, descriptor: int) -> subprocess.Popen[bytes]:
        if len(refusals) < 3:
            refusals.append(descriptor)
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return spawn(child, descriptor)

    monkeypatch.setattr(ChildProcess, "_spawn", refuse)
    with caplog.at_level(logging.WARNING, "docket.worker"):
        async with worker_at_work(docket, cpu_processes=1) as worker:
            execution = await docket.add(tasks.where)(7)
            problem = await eventually(worker.health_problem, "the worker is unhealthy")
            assert "no child process can be started" in str(problem)
            assert (await execution.get_result(timeout=WAIT_LIMIT))[0] == 7
            assert worker.health_problem() is None
    assert len(refusals) == 3
    assert sum("is left" in line or "are left for other workers" in line for line in caplog.messages) == 1
    assert execution.attempt == 1


async def test_a_child_that_dies_while_it_starts_is_replaced_and_after_three_the_task_fails(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, died = ChildProcess.start, list[int]()

    async def die(child: ChildProcess, settings: ChildSettings) -> None:
        if len(died) < 2:
            died.append(1)
            raise NeverBegan("the child process 1 ended with exit code 1 before it was ready", None, 1)
        await start(child, settings)

    monkeypatch.setattr(ChildProcess, "start", die)
    async with worker_at_work(docket, cpu_processes=1):
        assert (await (await docket.add(tasks.where)(7)).get_result(timeout=WAIT_LIMIT))[0] == 7

    async def always_die(child: ChildProcess, settings: ChildSettings) -> None:
        raise NeverBegan("the child process 1 ended with exit code 1 before it was ready", None, 1)

    monkeypatch.setattr(ChildProcess, "start", always_die)
    async with worker_at_work(docket, cpu_processes=1):
        execution = await docket.add(tasks.where)(8)
        with pytest.raises(ProcessLost, match="before it was ready") as raised:
            await execution.get_result(timeout=WAIT_LIMIT)
        assert type(raised.value) is ProcessLost
        await execution.sync()
        assert execution.state is ExecutionState.FAILED
