"""A call can be prepared in one place and sent from another: a prepared task is plain data."""

from __future__ import annotations

import pytest

from docket import Docket, ServerUnreachable, Worker
from docket.calls import CallFields
from docket.execution import Execution
from docket.ledger import EnqueueResult, NewTask
from docket.storage.server import Server

ran: list[str] = []


async def note(text: str) -> None:
    ran.append(text[:10])


@pytest.fixture(autouse=True)
def forget() -> None:
    ran.clear()


def call(docket: Docket, text: str, key: str | None = None) -> Execution:
    return CallFields(docket.registry, note, None, key, {}, False).execution(docket, (text,), {})


def prepared(docket: Docket, text: str, key: str | None = None) -> bytes:
    return docket.scheduler.prepare(call(docket, text, key), replace=False).to_bytes()


async def send(docket: Docket, *tasks: bytes) -> list[bool]:
    results = await docket.scheduler.send([NewTask.from_bytes(task) for task in tasks])
    assert all(isinstance(result, EnqueueResult) for result in results)
    return [isinstance(result, EnqueueResult) and result.scheduled for result in results]


async def test_a_task_runs_that_another_docket_object_has_prepared(docket: Docket, worker: Worker) -> None:
    async with Docket(docket.name, docket.url) as elsewhere:
        tasks = [prepared(elsewhere, "one"), prepared(elsewhere, "two", "my-key")]
    docket.register(note)
    assert await send(docket, *tasks) == [True, True]
    await worker.run_until_finished()
    assert sorted(ran) == ["one", "two"]


async def test_a_task_with_a_generated_key_that_is_sent_twice_runs_once(docket: Docket, worker: Worker) -> None:
    docket.register(note)
    task = prepared(docket, "once")
    await send(docket, task)
    await send(docket, task)
    await worker.run_until_finished()
    await send(docket, task)
    await worker.run_until_finished()
    assert ran == ["once"]


async def test_a_large_call_travels_with_the_task(docket: Docket, worker: Worker) -> None:
    docket.register(note)
    assert await send(docket, prepared(docket, "large" * 100_000), prepared(docket, "small")) == [True, True]
    await worker.run_until_finished()
    assert sorted(ran) == ["largelarge", "small"]


async def test_nothing_is_sent_when_a_task_is_prepared(docket: Docket, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ServerUnreachable("nothing may be sent")

    with monkeypatch.context() as patch:
        patch.setattr(Server, "run", fail)
        patch.setattr(Server, "ask_alone", fail)
        task = prepared(docket, "x" * 100_000)
    assert NewTask.from_bytes(task).payload is not None
