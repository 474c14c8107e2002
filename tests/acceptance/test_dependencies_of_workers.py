"""Dependencies that a worker wraps round every task."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from docket import Depends, Docket, ExecutionState, Retry, Timeout, Worker
from docket.dependencies import Dependency
from tests.running import run_everything


def lamp(events: list[str], name: str) -> Any:
    @asynccontextmanager
    async def switch() -> AsyncGenerator[str]:
        events.append(f"{name} on")
        try:
            yield name
        finally:
            events.append(f"{name} off")

    return Depends(switch)


@pytest.mark.parametrize("form", ["mapping", "list"])
async def test_worker_dependencies_are_set_up_in_order_and_torn_down_in_reverse(docket: Docket, form: str) -> None:
    events: list[str] = []
    first, second = lamp(events, "first"), lamp(events, "second")

    async def work() -> None:
        events.append("work")

    await docket.add(work)()
    await run_everything(docket, dependencies={"a": first, "b": second} if form == "mapping" else [first, second])

    assert events == ["first on", "second on", "work", "second off", "first off"]


async def test_every_task_is_wrapped(docket: Docket) -> None:
    events: list[str] = []

    async def one() -> None:
        events.append("one")

    async def two() -> None:
        events.append("two")

    await docket.add(one)()
    await docket.add(two)()
    await run_everything(docket, dependencies=[lamp(events, "lamp")], concurrency=1)

    assert events.count("lamp on") == events.count("lamp off") == 2


async def test_the_workers_dependencies_are_round_those_of_the_task(docket: Docket) -> None:
    events: list[str] = []

    async def work(own: str = lamp(events, "own")) -> None:
        events.append("work")

    await docket.add(work)()
    await run_everything(docket, dependencies=[lamp(events, "worker's")])

    assert events == ["worker's on", "own on", "work", "own off", "worker's off"]


async def test_a_failed_worker_dependency_fails_the_task_without_running_it(docket: Docket) -> None:
    ran: list[int] = []

    async def broken() -> None:
        raise ConnectionError("no mains")

    async def work() -> None:
        ran.append(1)

    execution = await docket.add(work)()
    await run_everything(docket, dependencies={"power": Depends(broken)})
    await execution.sync()

    assert ran == []
    assert execution.state == ExecutionState.FAILED
    with pytest.raises(ExceptionGroup, match="power") as caught:
        await execution.get_result()
    assert caught.group_contains(ConnectionError, match="no mains")


async def test_a_failed_worker_dependency_goes_through_the_tasks_retries(docket: Docket) -> None:
    tries: list[int] = []

    async def shaky() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("no mains")

    async def work(retry: Retry = Retry(attempts=2)) -> str:
        return "done"

    execution = await docket.add(work)()
    await run_everything(docket, dependencies=[Depends(shaky)])

    assert await execution.get_result() == "done"
    assert len(tries) == 2


async def test_those_set_up_before_a_failed_one_are_torn_down(docket: Docket) -> None:
    events: list[str] = []

    async def broken() -> None:
        raise ConnectionError("no mains")

    async def work() -> None: ...

    await docket.add(work)()
    await run_everything(docket, dependencies=[lamp(events, "lamp"), Depends(broken)])

    assert events == ["lamp on", "lamp off"]


@pytest.mark.parametrize("name", ["__mine", "__worker_dependency_0"])
def test_names_that_begin_with_two_underscores_are_reserved(docket: Docket, name: str) -> None:
    with pytest.raises((ValueError, TypeError), match="__"):
        Worker(docket, dependencies={name: Timeout(timedelta(seconds=1))})


@pytest.mark.parametrize("wrong", [{"a": "text"}, {"a": print}, ["text"], [Timeout], [None]])
def test_anything_that_is_no_dependency_is_a_type_error(docket: Docket, wrong: Any) -> None:
    with pytest.raises(TypeError):
        Worker(docket, dependencies=wrong)


async def test_a_single_kind_on_both_sides_fails_the_task_and_names_both(docket: Docket) -> None:
    ran: list[int] = []

    async def limited(its_own: Timeout = Timeout(timedelta(seconds=5))) -> None:
        ran.append(1)

    async def other() -> None:
        ran.append(2)

    execution = await docket.add(limited)()
    await docket.add(other)()
    await run_everything(docket, dependencies={"the_workers": Timeout(timedelta(seconds=5))})
    await execution.sync()

    assert ran == [2]
    assert execution.state == ExecutionState.FAILED
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the type is free, the text is not
        await execution.get_result()
    text = repr(caught.value) + str(execution.error)
    assert "the_workers" in text
    assert "its_own" in text


async def test_a_worker_may_limit_the_time_of_all_its_tasks(docket: Docket) -> None:
    async def dawdle() -> None:
        await asyncio.sleep(30)

    execution = await docket.add(dawdle)()
    await run_everything(docket, dependencies={"limit": Timeout(timedelta(milliseconds=50))})

    with pytest.raises(TimeoutError):
        await execution.get_result()


async def test_a_worker_may_retry_all_its_tasks(docket: Docket) -> None:
    runs: list[int] = []

    async def burn() -> None:
        runs.append(1)
        raise ValueError("smoke")

    await docket.add(burn)()
    await run_everything(docket, dependencies=[Retry(attempts=3)])

    assert len(runs) == 3


async def test_a_context_variable_set_by_the_worker_is_seen_by_the_tasks_dependencies_and_body(
    docket: Docket,
) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[str] = []

    class Tenant(Dependency["Tenant"]):
        async def __aenter__(self) -> "Tenant":
            tenant.set("acme")
            return self

    def own() -> str:
        return tenant.get()

    async def work(it: str = Depends(own)) -> None:
        seen.extend([it, tenant.get()])

    await docket.add(work)()
    await run_everything(docket, dependencies=[Tenant()])

    assert seen == ["acme", "acme"]
    assert tenant.get() == "nobody"


async def test_a_worker_dependency_lives_once_per_worker_through_its_life_cycle(docket: Docket) -> None:
    events: list[str] = []

    class Engine(Dependency["Engine"]):
        @classmethod
        @asynccontextmanager
        async def worker_lifecycle(cls, docket: Docket, worker: Worker) -> AsyncGenerator[None]:
            events.append("start")
            yield
            events.append("stop")

        async def __aenter__(self) -> "Engine":
            events.append("task")
            return self

    async def work() -> None: ...

    await docket.add(work)()
    await docket.add(work)()
    await run_everything(docket, dependencies=[Engine()])

    assert events == ["start", "task", "task", "stop"]
