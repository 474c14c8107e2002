"""A task that waits for another task of its docket while its worker has no slot left."""

import asyncio
import logging
from uuid import uuid4

import pytest

from docket import Docket
from docket.execution import ExecutionCancelled
from tests.running import TICK, running, worker_for
from tests.waiting import within


class Warnings(logging.Handler):
    """The warnings of the worker, and an event when there is one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        self.came = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        self.came.set()


@pytest.fixture
async def warnings():
    handler = Warnings()
    logger = logging.getLogger("docket.worker")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def child() -> str:
    return "done"


async def test_a_body_that_waits_for_its_child_at_full_concurrency_is_warned_of(
    docket: Docket, warnings: Warnings
) -> None:
    docket.register(child)
    both_slots = asyncio.Barrier(2)

    async def parent(number: int) -> str:
        await both_slots.wait()
        execution = await docket.add(child, key=f"child-{number}")()
        try:
            return await execution.get_result()
        except ExecutionCancelled:
            return "cancelled"

    async with worker_for(docket, concurrency=2, name="Ada") as worker, running(worker):
        parents = [await docket.add(parent, key=f"parent-{number}")(number) for number in range(2)]
        await within(warnings.came.wait())
        for number in range(2):
            await docket.cancel(f"child-{number}")
        for execution in parents:
            # The first parent that goes on frees a slot for the other's child.
            assert await within(execution.get_result()) in ("cancelled", "done")

    (warning,) = warnings.messages
    assert warning.startswith("parent(")
    assert "child-" in warning
    assert "all 2 slots of worker Ada are taken" in warning


async def test_a_body_that_waits_while_a_slot_is_free_is_not_warned_of(docket: Docket, warnings: Warnings) -> None:
    docket.register(child)

    async def parent() -> str:
        execution = await docket.add(child)()
        return await execution.get_result()

    async with worker_for(docket, concurrency=2) as worker, running(worker):
        execution = await docket.add(parent)()
        assert await within(execution.get_result()) == "done"

    assert warnings.messages == []


async def test_a_body_that_waits_for_a_task_of_another_docket_is_not_warned_of(
    docket: Docket, warnings: Warnings
) -> None:
    async with Docket(name=f"other-{uuid4().hex}", url=docket.url) as other:
        other.register(child)

        async def parent() -> str:
            execution = await other.add(child)()
            return await execution.get_result()

        async with (
            worker_for(docket, concurrency=1) as worker,
            worker_for(other) as beside,
            running(worker),
            running(beside),
        ):
            execution = await docket.add(parent)()
            assert await within(execution.get_result()) == "done"

    assert warnings.messages == []


async def test_a_caller_outside_tasks_is_not_warned_of(docket: Docket, warnings: Warnings) -> None:
    begun = asyncio.Event()

    async def hold() -> None:
        begun.set()
        await asyncio.sleep(TICK.total_seconds())

    async with worker_for(docket, concurrency=1) as worker, running(worker):
        first, second = await docket.add(hold)(), await docket.add(hold)()
        await within(begun.wait())
        await within(second.get_result())
        await within(first.get_result())

    assert warnings.messages == []
