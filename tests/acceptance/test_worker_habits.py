"""What is easy to miss about workers, and the places that clients know."""

import asyncio
import contextvars
import inspect
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial, wraps
from typing import Any
from unittest.mock import AsyncMock

import pytest
from redis.exceptions import ResponseError
from typer.testing import CliRunner

from docket import CurrentExecution, Depends, Docket, Execution, ExecutionState, Worker
from docket.cli import app
from tests.running import run_everything, running, worker_for
from tests.waiting import SECONDS, ends, eventually, within


async def test_a_task_may_run_longer_than_the_redelivery_timeout_without_being_run_twice(docket: Docket) -> None:
    runs: list[int] = []

    async def long() -> str:
        runs.append(1)
        await asyncio.sleep(6)
        return "done"

    execution = await docket.add(long)()
    timeout = timedelta(seconds=2)
    first = worker_for(docket, name="a", redelivery_timeout=timeout)
    second = worker_for(docket, name="b", redelivery_timeout=timeout)
    async with first, second, running(first), running(second):
        assert await within(execution.get_result()) == "done"

    assert runs == [1]


async def test_a_worker_that_is_entered_but_does_not_run_is_not_listed(docket: Docket, worker: Worker) -> None:
    await asyncio.sleep(0)
    assert await docket.workers() == []


async def test_a_running_worker_is_listed_with_all_names_of_its_tasks_and_gone_when_it_stops(docket: Docket) -> None:
    async def serve() -> None: ...

    docket.register(serve, names=["serve", "wait_on"])
    async with worker_for(docket, name="w") as worker:
        async with running(worker):

            async def is_listed() -> bool:
                return [info.name for info in await docket.workers()] == ["w"]

            await eventually(is_listed, "the worker is listed")
            (info,) = await docket.workers()
            assert {"serve", "wait_on", "trace", "fail", "sleep"} <= set(info.tasks)
            assert [found.name for found in await docket.task_workers("wait_on")] == ["w"]

        assert await docket.workers() == []
        assert await docket.task_workers("wait_on") == []


async def test_entering_a_worker_that_is_cancelled_on_the_way_does_not_hang(name: str, url: str) -> None:
    async with Docket(name=name, url=url) as docket:

        async def enter() -> None:
            async with Worker(docket) as worker:
                await worker.run_forever()

        for turns in (0, 1, 2, 3, 5, 8, 13):
            task = asyncio.create_task(enter())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=SECONDS)
            assert done


async def test_bodies_run_in_tasks_made_by_the_loops_task_factory(docket: Docket) -> None:
    made: set[asyncio.Task[Any]] = set()
    own: list[bool] = []
    loop = asyncio.get_running_loop()

    def factory(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> "asyncio.Task[Any]":
        task = asyncio.Task(coro, loop=loop, **options)
        made.add(task)
        return task

    async def body() -> None:
        current = asyncio.current_task()
        assert current is not None
        own.append(current in made)

    before = loop.get_task_factory()
    loop.set_task_factory(factory)  # pyright: ignore[reportArgumentType]
    try:
        await docket.add(body)()
        await run_everything(docket)
    finally:
        loop.set_task_factory(before)

    assert own == [True]


async def test_each_body_has_context_variables_of_its_own(docket: Docket) -> None:
    colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
    seen: list[str] = []

    async def paint(name: str) -> None:
        seen.append(colour.get())
        colour.set(name)
        await asyncio.sleep(0.01)
        assert colour.get() == name

    executions = [await docket.add(paint)(name) for name in ("red", "green", "blue")]
    await run_everything(docket)

    assert seen == ["none"] * 3
    assert colour.get() == "none"
    for execution in executions:
        await execution.sync()
        assert execution.state == ExecutionState.COMPLETED


async def test_a_context_variable_set_by_a_dependency_is_seen_by_the_body(docket: Docket) -> None:
    colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
    seen: list[str] = []

    async def brush() -> str:
        colour.set("red")
        return "brush"

    async def paint(tool: str = Depends(brush)) -> None:
        seen.append(colour.get())

    await docket.add(paint)()
    await run_everything(docket)

    assert seen == ["red"]


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name
        self.sold: list[str] = []

    async def sell(self, item: str, *, count: int = 1) -> None:
        self.sold.extend([item] * count)


async def test_a_bound_method_is_a_task(docket: Docket) -> None:
    shop = Shop("corner")
    docket.register(shop.sell)

    await docket.add(shop.sell)("bread", count=2)
    await docket.add("sell")("milk")
    await run_everything(docket)

    assert sorted(shop.sold) == ["bread", "bread", "milk"]


async def test_a_wrapper_with_a_signature_of_its_own_is_a_task(docket: Docket) -> None:
    seen: list[object] = []

    async def inner(number: int, execution: Execution = CurrentExecution()) -> None:
        seen.append((number, execution.key))

    async def wrapper(*args: Any, **kwargs: Any) -> None:
        seen.append("wrapped")
        await inner(*args, **kwargs)

    wrapper.__name__ = "wrapped_task"
    wrapper.__signature__ = inspect.signature(inner)  # pyright: ignore[reportFunctionMemberAccess]

    await docket.add(wrapper, key="k")(5)
    await run_everything(docket)

    assert seen == ["wrapped", (5, "k")]


async def test_a_decorated_function_is_a_task(docket: Docket) -> None:
    seen: list[object] = []

    async def inner(number: int, execution: Execution = CurrentExecution()) -> None:
        seen.append((number, execution.key))

    @wraps(inner)
    async def decorated(*args: Any, **kwargs: Any) -> None:
        seen.append("decorated")
        await inner(*args, **kwargs)

    await docket.add(decorated, key="k")(5)
    await run_everything(docket)

    assert seen == ["decorated", (5, "k")]


async def test_a_mock_with_a_name_and_a_signature_is_a_task(docket: Docket) -> None:
    mock = AsyncMock()
    mock.__name__ = "the_mock"
    mock.__signature__ = inspect.signature(lambda *args, **kwargs: None)
    mock.return_value = None

    await docket.add(mock)("a", b=1)
    await run_everything(docket)

    mock.assert_awaited_once_with("a", b=1)


async def test_keyword_only_parameters_are_fine(docket: Docket) -> None:
    seen: list[object] = []

    async def work(*, number: int, key: Execution = CurrentExecution()) -> None:
        seen.append((number, key.key))

    await docket.add(work, key="k")(number=3)
    await run_everything(docket)

    assert seen == [(3, "k")]


async def test_clients_may_set_attributes_on_an_execution(docket: Docket) -> None:
    async def work() -> None: ...

    execution = await docket.add(work)()
    execution.note_of_mine = "kept"  # pyright: ignore[reportAttributeAccessIssue]

    assert execution.note_of_mine == "kept"  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_client_may_make_the_stream_and_its_group_before_the_worker_starts(docket: Docket) -> None:
    ran: list[int] = []

    async def work() -> None:
        ran.append(1)

    assert docket.stream_key == f"{docket.prefix}:stream"
    assert docket.worker_group_name == "docket-workers"
    async with docket.redis() as redis:
        await redis.xgroup_create(docket.stream_key, docket.worker_group_name, id="$", mkstream=True)
    await docket.add(work)()
    await run_everything(docket)

    assert ran == [1]


async def test_a_group_made_by_a_client_after_work_was_added_loses_nothing(docket: Docket) -> None:
    ran: list[int] = []

    async def work() -> None:
        ran.append(1)

    await docket.add(work)()
    async with docket.redis() as redis:
        with suppress(ResponseError):  # the group may be there already
            await redis.xgroup_create(docket.stream_key, docket.worker_group_name, id="$", mkstream=True)
    await run_everything(docket)

    assert ran == [1]


@pytest.mark.one_server
async def test_equal_memory_urls_share_data_and_others_do_not(name: str, url: str) -> None:
    one, same, other = (Docket(name=name, url=place) for place in (url, url, url + "-else"))
    async with one, same, other:
        await one.add("trace", key="k")("hello")

        assert await same.get_execution("k") is not None
        assert await other.get_execution("k") is None


@pytest.mark.parametrize(
    "command", [["snapshot"], ["clear"], ["workers", "ls"], ["strike", "serve"], ["tasks", "trace", "x"]]
)
def test_commands_that_could_find_nothing_in_memory_say_so(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--url", "memory://nothing-here"])

    assert result.exit_code != 0
    assert "memory://" in result.output
    assert "Traceback" not in result.output


async def test_run_at_most_lets_other_workers_tasks_alone(docket: Docket, worker: Worker) -> None:
    ran: list[str] = []

    async def work(name: str) -> None:
        ran.append(name)

    await docket.add(work, key="counted")("counted")
    await docket.add(work, key="other")("other")
    await ends(worker.run_at_most({"counted": 1}))

    assert sorted(ran) == ["counted", "other"]


async def test_partial_functions_with_a_name_are_tasks(docket: Docket) -> None:
    seen: list[object] = []

    async def work(first: str, second: str) -> None:
        seen.append((first, second))

    function = partial(work, "given")
    function.__name__ = "partial_work"  # pyright: ignore[reportAttributeAccessIssue]

    await docket.add(function)("later")
    await run_everything(docket)

    assert seen == [("given", "later")]


async def test_run_at_most_nothing_runs_nothing(docket: Docket, worker: Worker) -> None:
    ran: list[str] = []

    async def note(text: str) -> None:
        ran.append(text)

    never = await docket.add(note, key="never")("never")
    await docket.add(note, key="free")("free")
    await ends(worker.run_at_most({"never": 0}))
    await never.sync()

    assert ran == ["free"]
    assert never.state == ExecutionState.CANCELLED


async def test_run_at_most_counts_a_key_that_is_scheduled_again(docket: Docket, worker: Worker) -> None:
    ran: list[str] = []

    async def note(text: str) -> None:
        ran.append(text)

    async def bring_back() -> None:
        first = await docket.get_execution("k")
        assert first is not None
        await first.get_result()
        await docket.add(note, key="k")("second")

    await docket.add(note, key="k")("first")
    await docket.add(bring_back)()
    await ends(worker.run_at_most({"k": 1}))

    assert ran == ["first"]
