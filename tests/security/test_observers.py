"""Observers decode nothing: a payload that runs code
when it is decoded can be listed and watched."""

import asyncio
from typing import Any

import pytest
from typer.testing import CliRunner

from docket import Docket
from docket.cli import app
from docket.inspection.live import Observer
from tests.times import later

from .forgeries import ENVELOPE, finished_record, task_record
from .traps import Trap


async def work(value: Any) -> None: ...


def with_call(record: bytes, trap: Trap) -> bytes:
    """The record of a task, with a trap as its call."""
    return record[: record.index(b"work") + len("work")] + b"\0\0" + ENVELOPE + trap.pickled


@pytest.fixture
async def trapped(docket: Docket, trap: Trap) -> Docket:
    """A docket with a forged task that waits, one that runs and one that has ended."""
    docket.register(work)
    server, keys = docket.server.client, docket.keys
    for key in ("waits", "runs"):
        await docket.add(work, key=key, when=later() if key == "waits" else None)(1)
    record = await server.hget(keys.tasks, "waits")
    await server.hset(keys.tasks, "waits", with_call(record, trap))
    record = await server.hget(keys.tasks, "runs")
    await server.hset(keys.tasks, "runs", with_call(record, trap))
    execution = await docket.get_execution("runs")
    assert execution is not None
    await execution.claim("somebody")
    finished = finished_record(task_record("work", trap.pickled), trap.pickled)
    await server.set(keys.run("ended"), finished, ex=600)
    return docket


async def test_get_execution_and_snapshot_decode_on_first_access(trapped: Docket, trap: Trap) -> None:
    executions = [await trapped.get_execution(key) for key in ("waits", "runs", "ended")]
    snapshot = await trapped.snapshot()
    executions += [*snapshot.future, *snapshot.running]
    assert len(executions) == 5
    for execution in executions:
        assert execution is not None
        assert execution.function_name == "work"
        assert repr(execution)
        assert (execution.attempt, execution.key in ("waits", "runs", "ended")) == (1, True)
        await execution.sync()
        assert {"docket.task": "work"}.items() <= execution.specific_labels().items()
    assert not trap.sprang

    execution = executions[0]
    assert execution is not None
    assert execution.args == ()
    assert trap.sprang
    assert execution.schedule_exception is not None, "what it unpickled is not a call"


async def test_workers_and_queries_decode_nothing(trapped: Docket, trap: Trap) -> None:
    await trapped.workers()
    await trapped.task_workers("work")
    observer = Observer(trapped)
    async with observer.listening():
        await observer.refresh()
        assert [task.key for task in observer.state.running] == ["runs"]
    assert await trapped.cancel("waits") is None
    assert not trap.sprang


async def test_a_subscription_decodes_nothing(trapped: Docket, trap: Trap) -> None:
    execution = await trapped.get_execution("ended")
    assert execution is not None
    events = [event async for event in execution.subscribe()]
    assert [event["type"] for event in events] == ["state", "progress"]
    assert not trap.sprang


COMMANDS = [
    ["snapshot"],
    ["snapshot", "--stats", "--json"],
    ["top", "--count", "1"],
    ["watch", "ended"],
    ["watch", "ended", "--json"],
    ["snapshot", "--state", "completed"],
    ["show", "waits"],
    ["show", "ended", "--json"],
    ["why", "waits"],
    ["why", "ended"],
    ["cancel", "waits"],
    ["cancel", "--function", "work"],
    ["workers", "ls"],
    ["workers", "for-task", "work"],
    ["strikes", "ls"],
    ["strike", "work", "value", "==", "int:1"],
    ["restore", "work", "value", "==", "int:1"],
    ["clear"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_no_command_decodes_anything(command: list[str], trap: Trap, tmp_path: Any) -> None:
    url = f"embedded://{tmp_path}/data"
    async with Docket("docket", url) as docket:
        docket.register(work)
        server = docket.server.client
        await server.hset(docket.keys.strikes, "forged", b"\x95\x01" + ENVELOPE + trap.pickled)
        await docket.add(work, key="waits", when=later())(1)
        record = await server.hget(docket.keys.tasks, "waits")
        await server.hset(docket.keys.tasks, "waits", with_call(record, trap))
        finished = finished_record(task_record("work", trap.pickled), trap.pickled)
        await server.set(docket.keys.run("ended"), finished, ex=600)
        result = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--url", url])
        assert result.exit_code in (0, 1), result.output
        assert "Traceback" not in result.output
    assert not trap.sprang
