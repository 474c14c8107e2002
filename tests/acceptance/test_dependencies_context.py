"""What a task learns about itself through its parameters."""

import logging
from typing import Any

import pytest

from docket import (
    CurrentDocket,
    CurrentExecution,
    CurrentWorker,
    Depends,
    Docket,
    Execution,
    ExecutionState,
    Progress,
    TaskArgument,
    TaskKey,
    TaskLogger,
    Worker,
)
from docket.dependencies import current_docket, current_execution, current_worker
from docket.execution import ExecutionProgress
from tests.running import run_everything
from tests.waiting import ends


async def test_a_task_is_given_its_docket_worker_and_execution(docket: Docket, worker: Worker) -> None:
    seen: list[object] = []

    async def look(
        its_docket: Docket = CurrentDocket(),
        its_worker: Worker = CurrentWorker(),
        its_execution: Execution = CurrentExecution(),
    ) -> None:
        seen.extend([its_docket, its_worker, its_execution.key])

    await docket.add(look, key="k")()
    await ends(worker.run_until_finished())

    assert seen == [docket, worker, "k"]


async def test_a_task_is_given_its_key(docket: Docket) -> None:
    seen: list[str] = []

    async def look(key: str = TaskKey()) -> None:
        seen.append(key)

    await docket.add(look, key="the-key")()
    await run_everything(docket)

    assert seen == ["the-key"]


async def test_a_task_may_add_more_work_to_its_docket(docket: Docket) -> None:
    ran: list[int] = []

    async def count_down(number: int, its_docket: Docket = CurrentDocket()) -> None:
        ran.append(number)
        if number:
            await its_docket.add(count_down)(number - 1)

    await docket.add(count_down)(2)
    await run_everything(docket)

    assert ran == [2, 1, 0]


async def test_the_context_variables_hold_the_same_as_the_parameters(docket: Docket, worker: Worker) -> None:
    seen: list[object] = []

    async def look() -> None:
        seen.extend([current_docket.get(), current_worker.get(), current_execution.get().key])

    await docket.add(look, key="k")()
    await ends(worker.run_until_finished())

    assert seen == [docket, worker, "k"]


async def test_a_dependency_reads_an_argument_of_its_task_by_name(docket: Docket) -> None:
    seen: list[str] = []

    async def greeting(who: str = TaskArgument("name")) -> str:
        return f"hello {who}"

    async def greet(name: str, text: str = Depends(greeting)) -> None:
        seen.append(text)

    await docket.add(greet)("Ada")
    await docket.add(greet)(name="Bob")
    await run_everything(docket)

    assert sorted(seen) == ["hello Ada", "hello Bob"]


async def test_an_arguments_name_defaults_to_that_of_the_dependencys_parameter(docket: Docket) -> None:
    seen: list[int] = []

    def doubled(number: int = TaskArgument()) -> int:
        return number * 2

    async def calculate(number: int, twice: int = Depends(doubled)) -> None:
        seen.append(twice)

    await docket.add(calculate)(21)
    await run_everything(docket)

    assert seen == [42]


async def test_an_optional_argument_that_the_task_lacks_is_none(docket: Docket) -> None:
    seen: list[object] = []

    async def region(place: str | None = TaskArgument("region", optional=True)) -> str | None:
        return place

    async def look(where: str | None = Depends(region)) -> None:
        seen.append(where)

    await docket.add(look)()
    await run_everything(docket)

    assert seen == [None]


async def test_a_needed_argument_that_the_task_lacks_fails_it(docket: Docket) -> None:
    ran: list[object] = []

    async def region(place: str = TaskArgument("region")) -> str:
        return place

    async def look(where: str = Depends(region)) -> None:
        ran.append(where)

    execution = await docket.add(look)()
    await run_everything(docket)
    await execution.sync()

    assert execution.state == ExecutionState.FAILED
    assert ran == []
    with pytest.raises(ExceptionGroup, match="where"):
        await execution.get_result()


async def test_an_argument_of_the_task_that_is_left_to_its_default_is_known_too(docket: Docket) -> None:
    seen: list[object] = []

    async def region(place: str = TaskArgument("region")) -> str:
        return place

    async def look(region: str = "north", where: str = Depends(region)) -> None:
        seen.append((region, where))

    await docket.add(look)("south")
    await run_everything(docket)

    assert seen == [("south", "south")]


async def test_a_task_logs_under_its_own_name_with_its_labels(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    kinds: list[Any] = []

    async def speak(logger: "logging.LoggerAdapter[logging.Logger]" = TaskLogger()) -> None:
        kinds.append(isinstance(logger, logging.LoggerAdapter))
        logger.info("a word from the task")

    with caplog.at_level(logging.INFO):
        await docket.add(speak, key="k")()
        await run_everything(docket, name="the-worker")

    assert kinds == [True]
    (record,) = [record for record in caplog.records if record.getMessage().endswith("a word from the task")]
    assert record.name == "docket.task.speak"
    labels = vars(record)
    assert labels["docket.name"] == docket.name
    assert labels["docket.worker"] == "the-worker"
    assert labels["docket.task"] == "speak"
    assert labels["docket.key"] == "k"


async def test_a_task_reports_its_progress(docket: Docket) -> None:
    async def work(progress: ExecutionProgress = Progress()) -> None:
        await progress.set_total(4)
        await progress.increment()
        await progress.increment(2)
        await progress.set_message("nearly there")

    execution = await docket.add(work)()
    await run_everything(docket)
    await execution.progress.sync()

    progress = execution.progress
    assert (progress.current, progress.total, progress.message) == (3, 4, "nearly there")
    assert progress.updated_at is not None


async def test_context_works_inside_a_nested_dependency(docket: Docket, worker: Worker) -> None:
    seen: list[object] = []

    async def inner(
        its_docket: Docket = CurrentDocket(),
        its_worker: Worker = CurrentWorker(),
        its_execution: Execution = CurrentExecution(),
        key: str = TaskKey(),
    ) -> tuple[object, ...]:
        return its_docket, its_worker, its_execution.key, key

    async def look(context: tuple[object, ...] = Depends(inner)) -> None:
        seen.append(context)

    await docket.add(look, key="k")()
    await ends(worker.run_until_finished())

    assert seen == [(docket, worker, "k", "k")]
