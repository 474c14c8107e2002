"""FastMCP itself, with this package as its task engine. `make test-clients` runs it, in an
environment of its own."""

import asyncio
import importlib.metadata
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import fastmcp
import fastmcp.dependencies as given
import fastmcp_tasks
import fastmcp_tasks.dependencies as engine
import mcp_types
import pytest
from fastmcp.server.dependencies import is_docket_available

import docket as package
from docket import CurrentExecution, Execution, TaskKey, Timeout
from tests.waiting import eventually, within

# What the clients' own dependencies deprecate is not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")


class Desk:
    """A FastMCP server whose tools are tasks, and what happened to them."""

    def __init__(self, name: str, url: str) -> None:
        self.seen: list[str] = []
        self.go_on = asyncio.Event()
        self.server: Any = fastmcp.FastMCP("desk")
        self.server.add_extension(fastmcp_tasks.TasksExtension(url=url, name=name))
        self._add_tools()
        self._add_a_tool_that_asks()

    def _add_tools(self) -> None:
        tool = self.server.tool(task=True)
        seen, go_on = self.seen, self.go_on

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
                if number == 2:
                    await go_on.wait()
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

    def _add_a_tool_that_asks(self) -> None:
        question = mcp_types.ElicitRequest(
            params=mcp_types.ElicitRequestFormParams(
                message="whom?", requested_schema={"type": "object", "properties": {"value": {"type": "string"}}}
            )
        )

        async def ask(ctx: Any) -> Any:
            if not ctx.input_responses:
                return mcp_types.InputRequiredResult(input_requests={"whom": question})
            return f"hello {ctx.input_responses['whom'].content['value']}"

        ask.__annotations__["ctx"] = fastmcp.Context
        self.server.tool(task=True)(ask)


@pytest.fixture
def desk(name: str, url: str) -> Desk:
    return Desk(name, url)


@pytest.fixture
async def client(desk: Desk) -> AsyncGenerator[Any]:
    async def answer(message: str, kind: Any, params: Any, context: Any) -> dict[str, str]:
        return {"value": "ada"}

    async with fastmcp.Client(desk.server, elicitation_handler=answer) as client:
        yield client


def test_fastmcp_takes_this_package_for_its_task_engine() -> None:
    assert importlib.metadata.version("pydocket") == "0.27.0"
    assert is_docket_available()
    assert Path(package.__file__).parent.joinpath("storage", "lua").is_dir()


async def test_tools_of_fastmcp_run_as_tasks(client: Any) -> None:
    results = await within(asyncio.gather(*(client.call_tool("add", {"a": a, "b": 1}) for a in range(20))))

    assert [result.data for result in results] == list(range(1, 21))


async def test_a_client_of_fastmcp_sees_how_far_its_task_is_and_gets_the_result(desk: Desk, client: Any) -> None:
    task = await fastmcp_tasks.call_tool_task(client, "count", {"upto": 3})

    async def is_half_way() -> bool:
        status = await task.status()
        return status.status == "working" and status.status_message == "2 of 3"

    await eventually(is_half_way, "the status says 2 of 3")
    desk.go_on.set()

    assert (await within(task.result())).data == "3/3"
    assert (await task.status()).status == "completed"


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
    task = await fastmcp_tasks.call_tool_task(client, "sleep", {})

    await eventually(lambda: "asleep" in desk.seen, "the tool sleeps")
    await task.cancel()
    await eventually(lambda: "woken" in desk.seen, "the tool is woken")

    assert (await task.status()).status == "cancelled"


async def test_a_tool_of_fastmcp_asks_and_goes_on_with_the_answer(client: Any) -> None:
    assert (await within(client.call_tool("ask"))).content[0].text == "hello ada"
