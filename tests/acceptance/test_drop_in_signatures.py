"""What code written for this API passes by position,
passes by keyword, gets back, or uses as a type."""

import asyncio
import inspect
import socket
import sys
import types
import urllib.request
from collections.abc import Iterator

import pytest

from docket import Depends, Disposition, Docket, Execution, Progress, TaskCall, Worker
from docket.dependencies import Dependency
from docket.execution import ExecutionProgress
from docket.instrumentation import healthcheck_server, metrics_server
from tests.running import run_everything
from tests.times import later, now
from tests.waiting import within


async def double(number: int) -> int:
    return number * 2


async def test_a_parameter_may_be_annotated_with_progress(docket: Docket) -> None:
    def report(progress: Progress | None = None) -> None: ...

    async def work(progress: Progress = Progress()) -> None:
        await progress.set_total(4)
        await progress.increment(3)

    assert inspect.signature(report).parameters["progress"].default is None
    assert isinstance(Progress(), Dependency)
    execution = await docket.add(work)()
    await run_everything(docket)
    await execution.sync()

    assert (execution.progress.current, execution.progress.total) == (3, 4)


async def test_the_progress_of_a_key_can_be_asked_for(docket: Docket) -> None:
    async def work(progress: ExecutionProgress = Progress()) -> None:
        await progress.increment(3)

    await docket.add(work, key="k")()
    await run_everything(docket)

    assert (await ExecutionProgress.create(docket, "k")).current == 3
    assert (await ExecutionProgress.create(docket, "unknown")).current is None


async def test_a_call_made_by_hand_can_be_scheduled(docket: Docket) -> None:
    docket.register(double)
    by_hand = TaskCall(double, (4,), {}, "k", now())

    (execution,) = await docket.add_many([by_hand])
    await run_everything(docket)

    assert (execution.function_name, execution.key) == ("double", "k")
    assert await execution.get_result() == 8


async def test_a_call_keeps_an_empty_key(docket: Docket) -> None:
    assert docket.call(double, key="")(4).key == ""


async def test_scheduling_an_execution_tells_what_became_of_it(docket: Docket) -> None:
    docket.register(double)
    first = Execution(docket, double, (4,), {}, "k", later(), 1, message_id=None)
    again = Execution(docket, double, (5,), {}, "k", later(), 1)

    assert await first.schedule() is Disposition.SCHEDULED
    assert await again.schedule() is Disposition.ALREADY_SCHEDULED
    assert await again.schedule(replace=True) is Disposition.SCHEDULED


async def test_asking_for_an_argument_that_was_not_passed_is_a_key_error(docket: Docket) -> None:
    execution = await docket.add(double)(4)

    assert execution.get_argument("number") == 4
    with pytest.raises(KeyError):
        execution.get_argument("letter")


@pytest.fixture
def collection() -> Iterator[str]:
    """The name of a module that holds tasks and dependencies."""
    module = types.ModuleType("tests_drop_in_collection")
    module.opened = []  # pyright: ignore[reportAttributeAccessIssue]

    async def opening() -> None:
        module.opened.append("opened")

    module.tasks = [double]  # pyright: ignore[reportAttributeAccessIssue]
    module.around = [Depends(opening)]  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules[module.__name__] = module
    yield module.__name__
    del sys.modules[module.__name__]


@pytest.mark.parametrize("by_path", [True, False], ids=["path", "object"])
async def test_a_worker_program_takes_dependencies(docket: Docket, url: str, collection: str, by_path: bool) -> None:
    module = sys.modules[collection]
    await docket.add(double)(4)

    await within(
        Worker.run(
            docket.name,
            url,
            tasks=[f"{collection}:tasks"],
            until_finished=True,
            message_batch=10,
            dependencies=f"{collection}:around" if by_path else module.around,
        )
    )

    assert module.opened == ["opened"]


async def test_a_worker_takes_the_size_of_a_batch(docket: Docket) -> None:
    assert Worker(docket, message_batch=1).docket is docket
    with pytest.raises(ValueError, match="message_batch=0"):
        Worker(docket, message_batch=0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def ask(port: int, path: str) -> tuple[int, str]:
    def answer() -> tuple[int, str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as page:
            return page.status, page.read().decode()

    return await asyncio.to_thread(answer)


@pytest.mark.parametrize("path", ["/", "/health", "/healthz", "/live?full=1"])
async def test_the_health_is_told_on_whatever_path_a_probe_asks(path: str) -> None:
    port = free_port()

    with healthcheck_server("127.0.0.1", port):
        assert await ask(port, path) == (200, "OK")


async def test_the_metrics_are_served_on_a_host_and_a_port() -> None:
    port = free_port()

    with metrics_server("127.0.0.1", port):
        status, _ = await ask(port, "/metrics")

    assert status == 200
