"""FastMCP and Prefect themselves, on top of this package, wherever they are installed.

    pip install ./compat/pydocket . 'fastmcp[tasks]>=4' prefect

gives an environment in which none of these is skipped.
"""

import asyncio
import importlib.metadata
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import docket as package
from docket import CurrentExecution, Docket, Execution, TaskKey, Timeout

from .waiting import eventually, within

# What the clients' own dependencies deprecate is not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def fastmcp() -> Any:
    pytest.importorskip("fastmcp_tasks", reason="needs fastmcp[tasks] 4")
    return pytest.importorskip("fastmcp")


class Desk:
    """A FastMCP server whose tools are tasks, and what happened to them."""

    def __init__(self, fastmcp: Any, name: str, url: str) -> None:
        tasks: Any = pytest.importorskip("fastmcp_tasks")
        self.seen: list[str] = []
        self.call_task: Any = tasks.call_tool_task
        self.server: Any = fastmcp.FastMCP("desk")
        self.server.add_extension(tasks.TasksExtension(url=url, name=name))
        self._add_tools(pytest.importorskip("fastmcp.dependencies"), pytest.importorskip("fastmcp_tasks.dependencies"))
        self._add_a_tool_that_asks(fastmcp, pytest.importorskip("mcp_types"))

    def _add_tools(self, given: Any, engine: Any) -> None:
        tool = self.server.tool(task=True)
        seen = self.seen

        @asynccontextmanager
        async def connection() -> AsyncGenerator[str]:
            seen.append("opened")
            yield "connection"
            seen.append("closed")

        @tool
        async def add(a: int, b: int) -> int:
            return a + b

        @tool
        async def count(upto: int, progress: Any = given.Progress()) -> str:
            await progress.set_total(upto)
            for number in range(1, upto + 1):
                await progress.increment()
                await progress.set_message(f"{number} of {upto}")
            return f"{progress.current}/{progress.total}"

        @tool
        async def fail() -> None:
            raise ValueError("out of paper")

        @tool
        async def dawdle(timeout: Timeout = Timeout(timedelta(milliseconds=50))) -> None:
            await asyncio.sleep(60)

        @tool
        async def sleep() -> None:
            seen.append("asleep")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("woken")
                raise

        @tool
        async def look(
            key: str = TaskKey(),
            execution: Execution = CurrentExecution(),
            docket: Any = engine.CurrentDocket(),
            worker: Any = engine.CurrentWorker(),
            server: Any = given.CurrentFastMCP(),
            link: str = given.Depends(connection),
        ) -> list[str]:
            assert execution.key == key
            return [type(docket).__module__, type(worker).__module__, server.name, link]

    def _add_a_tool_that_asks(self, fastmcp: Any, types: Any) -> None:
        question = types.ElicitRequest(
            params=types.ElicitRequestFormParams(
                message="whom?", requested_schema={"type": "object", "properties": {"value": {"type": "string"}}}
            )
        )

        async def ask(ctx: Any) -> Any:
            if not ctx.input_responses:
                return types.InputRequiredResult(input_requests={"whom": question})
            return f"hello {ctx.input_responses['whom'].content['value']}"

        ask.__annotations__["ctx"] = fastmcp.Context
        self.server.tool(task=True)(ask)


@pytest.fixture
def desk(fastmcp: Any, name: str, url: str) -> Desk:
    return Desk(fastmcp, name, url)


@pytest.fixture
async def client(fastmcp: Any, desk: Desk) -> AsyncGenerator[Any]:
    async def answer(message: str, kind: Any, params: Any, context: Any) -> dict[str, str]:
        return {"value": "ada"}

    async with fastmcp.Client(desk.server, elicitation_handler=answer) as client:
        yield client


def test_fastmcp_takes_this_package_for_its_task_engine(fastmcp: Any) -> None:
    importlib.metadata.version("pydocket")
    assert pytest.importorskip("fastmcp.server.dependencies").is_docket_available()
    assert Path(package.__file__).parent.joinpath("storage", "lua").is_dir()


async def test_tools_of_fastmcp_run_as_tasks(client: Any) -> None:
    results = await within(asyncio.gather(*(client.call_tool("add", {"a": a, "b": 1}) for a in range(20))))

    assert [result.data for result in results] == list(range(1, 21))


async def test_a_tool_of_fastmcp_reports_progress(client: Any) -> None:
    assert (await within(client.call_tool("count", {"upto": 3}))).data == "3/3"


async def test_a_tool_of_fastmcp_that_fails_says_why(client: Any) -> None:
    with pytest.raises(Exception, match="out of paper"):
        await within(client.call_tool("fail"))


async def test_a_tool_of_fastmcp_that_runs_out_of_time_says_so(client: Any) -> None:
    with pytest.raises(Exception, match="took longer than its Timeout of 50ms"):
        await within(client.call_tool("dawdle"))


async def test_a_tool_of_fastmcp_is_given_what_it_depends_on(desk: Desk, client: Any) -> None:
    found = (await within(client.call_tool("look"))).data

    assert found[0].startswith("docket")
    assert found[1].startswith("docket")
    assert found[2:] == ["desk", "connection"]
    assert desk.seen == ["opened", "closed"]


async def test_a_tool_of_fastmcp_is_cancelled_while_it_runs(desk: Desk, client: Any) -> None:
    task = await desk.call_task(client, "sleep", {})

    async def is_asleep() -> bool:
        return "asleep" in desk.seen

    async def is_woken() -> bool:
        return "woken" in desk.seen

    await eventually(is_asleep)
    await task.cancel()
    await eventually(is_woken)

    assert (await task.status()).status == "cancelled"


async def test_a_tool_of_fastmcp_asks_and_goes_on_with_the_answer(client: Any) -> None:
    assert (await within(client.call_tool("ask"))).content[0].text == "hello ada"


async def test_the_tasks_and_services_of_prefect_can_be_registered(
    name: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    pytest.importorskip("prefect.server.api.background_workers", reason="needs prefect", exc_type=ImportError)
    services: Any = pytest.importorskip("prefect.server.services.perpetual_services")

    async with Docket(name=name, url=url, execution_ttl=timedelta(0)) as docket:
        docket.register_collection("prefect.server.api.background_workers:task_functions")
        await services.register_and_schedule_perpetual_services(docket)
        waiting = {execution.key for execution in (await docket.snapshot()).future}

    enabled = {service.function.__name__ for service in services.get_enabled_perpetual_services()}
    assert enabled
    assert waiting == enabled
