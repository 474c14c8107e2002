"""Values that are made for a task: Depends, once per task, and Shared, once per worker."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from docket import CurrentExecution, Depends, Docket, Execution, ExecutionState, Retry, Shared, TaskArgument, TaskKey
from docket.dependencies import FailedDependency, resolved_dependencies
from tests.running import run_everything, worker_for
from tests.waiting import ends


def plain() -> str:
    return "plain"


async def awaited() -> str:
    return "awaited"


@contextmanager
def managed() -> Generator[str]:
    yield "managed"


@asynccontextmanager
async def managed_async() -> AsyncGenerator[str]:
    yield "managed async"


@pytest.mark.parametrize(
    ("factory", "value"),
    [(plain, "plain"), (awaited, "awaited"), (managed, "managed"), (managed_async, "managed async")],
)
async def test_every_kind_of_function_can_be_depended_on(docket: Docket, factory: Any, value: str) -> None:
    seen: list[str] = []

    async def use(it: str = Depends(factory)) -> None:  # pyright: ignore[reportArgumentType]
        seen.append(it)

    await docket.add(use)()
    await run_everything(docket)

    assert seen == [value]


@pytest.mark.parametrize(
    ("factory", "value"),
    [(plain, "plain"), (awaited, "awaited"), (managed, "managed"), (managed_async, "managed async")],
)
async def test_every_kind_of_function_can_be_shared(docket: Docket, factory: Any, value: str) -> None:
    seen: list[str] = []

    async def use(it: str = Shared(factory)) -> None:  # pyright: ignore[reportArgumentType]
        seen.append(it)

    await docket.add(use)()
    await run_everything(docket)

    assert seen == [value]


async def test_a_context_manager_is_open_while_the_task_runs_and_closed_after(docket: Docket) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def connection() -> AsyncGenerator[str]:
        events.append("open")
        try:
            yield "connection"
        finally:
            events.append("closed")

    async def use(it: str = Depends(connection)) -> None:
        events.append(f"use {it}")

    await docket.add(use)()
    await run_everything(docket)

    assert events == ["open", "use connection", "closed"]


async def test_a_context_manager_is_closed_when_the_task_fails(docket: Docket) -> None:
    events: list[str] = []

    @contextmanager
    def connection() -> Generator[str]:
        try:
            yield "connection"
        finally:
            events.append("closed")

    async def use(it: str = Depends(connection)) -> None:
        raise ValueError(it)

    execution = await docket.add(use)()
    await run_everything(docket)

    assert events == ["closed"]
    with pytest.raises(ValueError, match="connection"):
        await execution.get_result()


async def test_context_managers_are_closed_in_reverse_order(docket: Docket) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def outer() -> AsyncGenerator[str]:
        events.append("open outer")
        yield "outer"
        events.append("close outer")

    @asynccontextmanager
    async def inner(below: str = Depends(outer)) -> AsyncGenerator[str]:
        events.append("open inner")
        yield f"inner on {below}"
        events.append("close inner")

    async def use(it: str = Depends(inner)) -> None:
        events.append(it)

    await docket.add(use)()
    await run_everything(docket)

    assert events == ["open outer", "open inner", "inner on outer", "close inner", "close outer"]


async def test_a_dependency_is_made_once_per_task_however_many_need_it(docket: Docket) -> None:
    made: list[object] = []
    seen: list[object] = []

    async def session() -> object:
        made.append(object())
        return made[-1]

    async def repository(it: object = Depends(session)) -> object:
        return it

    async def use(
        first: object = Depends(session), second: object = Depends(session), third: object = Depends(repository)
    ) -> None:
        seen.append({id(first), id(second), id(third)})

    await docket.add(use)()
    await docket.add(use)()
    await run_everything(docket)

    assert len(made) == 2
    assert [len(ids) for ids in seen] == [1, 1]  # pyright: ignore[reportArgumentType]


async def test_a_dependency_is_made_again_for_a_retry(docket: Docket) -> None:
    made: list[int] = []

    async def session() -> int:
        made.append(len(made))
        return made[-1]

    async def use(it: int = Depends(session), retry: Retry = Retry(attempts=3)) -> None:
        raise ValueError(it)

    await docket.add(use)()
    await run_everything(docket)

    assert made == [0, 1, 2]


async def test_a_shared_value_is_made_once_per_worker_and_closed_at_its_end(docket: Docket) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def pool() -> AsyncGenerator[object]:
        events.append("open")
        yield object()
        events.append("closed")

    async def use(it: object = Shared(pool)) -> None:
        events.append(f"use {id(it)}")

    async with worker_for(docket) as worker:
        for _ in range(3):
            await docket.add(use)()
        await ends(worker.run_until_finished())
        await docket.add(use)()
        await ends(worker.run_until_finished())
        assert "closed" not in events

    assert events[0] == "open"
    assert events[-1] == "closed"
    assert len(events) == 6
    assert len(set(events[1:5])) == 1


async def test_a_shared_value_is_made_once_although_many_tasks_start_at_once(docket: Docket) -> None:
    made: list[int] = []

    async def pool() -> int:
        made.append(1)
        await asyncio.sleep(0.02)
        return len(made)

    async def use(it: int = Shared(pool)) -> int:
        return it

    for _ in range(10):
        await docket.add(use)()
    await run_everything(docket)

    assert made == [1]


async def test_each_worker_has_shared_values_of_its_own(docket: Docket) -> None:
    made: list[int] = []

    def pool() -> int:
        made.append(len(made))
        return made[-1]

    async def use(it: int = Shared(pool)) -> None: ...

    for _ in range(2):
        await docket.add(use)()
        await run_everything(docket)

    assert made == [0, 1]


async def test_a_shared_value_that_no_task_needs_is_not_made(docket: Docket) -> None:
    made: list[int] = []

    def pool() -> int:
        made.append(1)
        return 1

    async def use(it: int = Shared(pool)) -> None: ...

    async def other() -> None: ...

    docket.register(use)
    await docket.add(other)()
    await run_everything(docket)

    assert made == []


async def test_a_task_dependency_may_build_on_a_shared_one(docket: Docket) -> None:
    seen: list[str] = []

    def pool() -> str:
        return "pool"

    async def session(it: str = Shared(pool)) -> str:
        return f"session of {it}"

    async def use(it: str = Depends(session)) -> None:
        seen.append(it)

    await docket.add(use)()
    await run_everything(docket)

    assert seen == ["session of pool"]


async def test_a_shared_value_that_failed_is_tried_again_for_the_next_task(docket: Docket) -> None:
    tries: list[int] = []
    seen: list[str] = []

    async def pool() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("not yet")
        return "pool"

    async def use(it: str = Shared(pool)) -> None:
        seen.append(it)

    async with worker_for(docket) as worker:
        first = await docket.add(use)()
        await ends(worker.run_until_finished())
        await docket.add(use)()
        await ends(worker.run_until_finished())
    await first.sync()

    assert first.state == ExecutionState.FAILED
    assert seen == ["pool"]


async def test_a_failed_dependency_fails_the_task_and_names_the_parameter(docket: Docket) -> None:
    ran: list[str] = []

    async def session() -> str:
        raise ConnectionError("the cellar is flooded")

    async def use(its_session: str = Depends(session)) -> None:
        ran.append(its_session)

    execution = await docket.add(use)()
    await run_everything(docket)
    await execution.sync()

    assert ran == []
    assert execution.state == ExecutionState.FAILED
    with pytest.raises(ExceptionGroup, match="its_session") as caught:
        await execution.get_result()
    assert caught.group_contains(ConnectionError, match="flooded")


async def test_all_failed_dependencies_are_named(docket: Docket) -> None:
    def one() -> str:
        raise ConnectionError("one")

    async def two() -> str:
        raise LookupError("two")

    async def use(first: str = Depends(one), second: str = Depends(two)) -> None: ...

    execution = await docket.add(use)()
    await run_everything(docket)

    with pytest.raises(ExceptionGroup) as caught:
        await execution.get_result()
    assert "first" in str(caught.value)
    assert "second" in str(caught.value)
    assert caught.group_contains(ConnectionError)
    assert caught.group_contains(LookupError)


async def test_a_failed_dependency_goes_through_the_retries(docket: Docket) -> None:
    tries: list[int] = []
    ran: list[str] = []

    async def session() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return "session"

    async def use(it: str = Depends(session), retry: Retry = Retry(attempts=3)) -> None:
        ran.append(it)

    execution = await docket.add(use)()
    await run_everything(docket)
    await execution.sync()

    assert len(tries) == 3
    assert ran == ["session"]
    assert execution.state == ExecutionState.COMPLETED


async def test_a_retry_declared_after_the_failed_dependency_counts_as_well(docket: Docket) -> None:
    attempts: list[int] = []

    async def session(execution: Execution = CurrentExecution()) -> str:
        attempts.append(execution.attempt)
        raise ConnectionError("never")

    async def use(retry: Retry = Retry(attempts=2), it: str = Depends(session)) -> None: ...

    execution = await docket.add(use)()
    await run_everything(docket)
    await execution.sync()

    assert attempts == [1, 2]
    assert execution.state == ExecutionState.FAILED


async def test_a_dependencys_value_may_be_passed_by_keyword(docket: Docket) -> None:
    made: list[int] = []
    seen: list[str] = []

    async def session() -> str:
        made.append(1)
        return "made"

    async def use(number: int, it: str = Depends(session)) -> None:
        seen.append(it)

    await docket.add(use)(1, it="given")
    await run_everything(docket)

    assert seen == ["given"]
    assert made == []


async def test_a_failure_while_closing_a_dependency_fails_the_task(docket: Docket) -> None:
    @asynccontextmanager
    async def session() -> AsyncGenerator[str]:
        yield "session"
        raise ConnectionError("could not commit")

    async def use(it: str = Depends(session)) -> None: ...

    execution = await docket.add(use)()
    await run_everything(docket)
    await execution.sync()

    assert execution.state == ExecutionState.FAILED
    assert execution.error is not None
    assert "could not commit" in execution.error


async def test_dependencies_can_be_resolved_without_a_worker() -> None:
    async def session() -> str:
        return "session"

    async def use(number: int, it: str = Depends(session)) -> None: ...

    async with resolved_dependencies(use, {"number": 1}) as values:
        assert values["it"] == "session"


def test_a_failed_dependency_says_which_parameter_and_why() -> None:
    error = ConnectionError("no")
    failed = FailedDependency("it", error)

    assert failed.parameter == "it"
    assert failed.error is error


async def test_gathered_arguments_do_not_stand_in_for_dependencies(docket: Docket) -> None:
    seen: list[object] = []

    async def amounts(all: tuple[int, ...] = TaskArgument("numbers")) -> int:
        return sum(all)

    async def add_up(*numbers: int, key: str = TaskKey(), total: int = Depends(amounts)) -> None:
        seen.extend([numbers, key, total])

    await docket.add(add_up, key="k")(1, 2, 3, 4)
    await run_everything(docket)

    assert seen == [(1, 2, 3, 4), "k", 10]


@pytest.mark.parametrize("beside", [True, False], ids=["beside others", "alone"])
async def test_a_value_given_by_position_stands_in_for_the_dependency(docket: Docket, beside: bool) -> None:
    seen: list[object] = []

    async def alone(number: int, key: str = TaskKey()) -> None:
        seen.extend([number, key])

    async def with_another(number: int, key: str = TaskKey(), *, five: int = Depends(lambda: 5)) -> None:
        seen.extend([number, key])

    await docket.add(with_another if beside else alone)(1, "mine")
    await run_everything(docket)

    assert seen == [1, "mine"]
