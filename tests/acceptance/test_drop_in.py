"""What FastMCP and Prefect ask of the package, asked through the public API alone.

The clients themselves run in test_drop_in_clients.py, where they are installed.
"""

import asyncio
import functools
import importlib
import inspect
import logging
import tomllib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any
from uuid import uuid4

import pytest
from uncalled_for import Dependency, introspection

from docket import (
    CurrentDocket,
    Depends,
    Docket,
    Execution,
    ExecutionState,
    Logged,
    Perpetual,
    Retry,
    TaskKey,
    Timeout,
    Worker,
)
from docket.dependencies import current_execution, get_single_dependency_parameter_of_type
from tests.running import run_everything, running, worker_for
from tests.times import later
from tests.waiting import eventually, within

ROOT = Path(__file__).parents[2]

IMPORTED = {
    "fastmcp": {
        "docket": "Depends Docket TaskKey Worker",
        "docket.dependencies": "Dependency Progress _Depends _parameter_cache current_execution",
        "docket.docket": "Docket",
        "docket.execution": "Execution ExecutionState _signature_cache",
        "docket.worker": "Worker",
    },
    "prefect": {
        "docket": "CurrentDocket Depends Docket Logged Perpetual Retry Worker",
        "docket.dependencies": "get_single_dependency_parameter_of_type",
        "docket.execution": "TaskFunction",
    },
}


@pytest.mark.parametrize(
    ("client", "module", "name"),
    [
        (client, module, name)
        for client, modules in IMPORTED.items()
        for module, names in modules.items()
        for name in names.split()
    ],
)
def test_what_a_client_imports_is_there(client: str, module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


def test_the_distribution_that_clients_require_is_provided() -> None:
    project = tomllib.loads((ROOT / "compat" / "pydocket" / "pyproject.toml").read_text())["project"]

    assert project["name"] == "pydocket"
    assert tuple(int(part) for part in project["version"].split(".")) >= (0, 26)
    assert any(requirement.startswith("docket") for requirement in project["dependencies"])


class Progressing(Dependency[Any]):
    """A dependency that knows nothing of docket but the
    variable of the running task, as FastMCP's are."""

    async def __aenter__(self) -> Any:
        return current_execution.get().progress

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None


def wrapped(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """A wrapper that takes anything and shows the signature of what it wraps."""

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    wrapper.__signature__ = inspect.signature(function)  # pyright: ignore[reportAttributeAccessIssue]
    return wrapper


async def test_a_wrapped_tool_runs_with_dependencies_of_another_library(docket: Docket) -> None:
    async def crunch(rows: int, *, progress: Any = Progressing(), key: str = TaskKey()) -> str:
        await progress.set_total(rows)
        await progress.increment(rows)
        await progress.set_message("crunched")
        return f"{progress.current}/{progress.total} {key}"

    docket.register(wrapped(crunch), names=["tool:crunch@"])
    key = "anon:a-token:tool:tool%3Acrunch%40"
    execution = await docket.add("tool:crunch@", key=key)(rows=3)
    found = await docket.get_execution(key)
    await run_everything(docket)

    assert found is not None
    await found.sync()
    assert found.state == ExecutionState.COMPLETED
    assert found.progress.message == "crunched"
    assert await found.get_result(timeout=timedelta(0)) == await execution.get_result() == f"3/3 {key}"


async def test_a_signature_that_was_rewritten_and_forgotten_by_the_caches_is_read_again(docket: Docket) -> None:
    async def greet(name: str, context: Any = None) -> str:
        return f"{name}: {context}"

    def context() -> str:
        return "injected"

    docket.register(greet)
    signature = inspect.signature(greet)
    parameters = [
        parameter.replace(default=Depends(context)) if parameter.name == "context" else parameter
        for parameter in signature.parameters.values()
    ]
    greet.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
    for cache in ("_signature_cache", "_parameter_cache"):  # FastMCP reaches for these by name
        getattr(introspection, cache).pop(greet, None)

    docket.register(greet, names=["tool:greet@"])
    execution = await docket.add("tool:greet@")(name="ada")
    await run_everything(docket)

    assert await execution.get_result() == "ada: injected"


restored: ContextVar[str] = ContextVar("restored")


async def test_what_a_worker_restores_for_every_task_is_seen_by_its_dependencies_and_its_body(docket: Docket) -> None:
    async def restore(key: str = TaskKey()) -> None:
        async with docket.redis() as redis:
            stored = await redis.get(docket.key(f"tasks:{key}:snapshot"))
        if stored is not None:
            assert isinstance(stored, bytes)
            restored.set(stored.decode())

    async def seen_by_a_dependency() -> str:
        return restored.get("nothing")

    async def crunch(seen: str = Depends(seen_by_a_dependency)) -> tuple[str, str]:
        return seen, restored.get("nothing")

    docket.register(crunch)
    async with docket.redis() as redis:
        await redis.set(docket.key("tasks:one:snapshot"), "who asked", ex=60)
    async with worker_for(docket, dependencies=[Depends(restore)]) as worker:
        run = asyncio.create_task(worker.run_forever(), name="the worker of a client")
        results = [await within((await docket.add("crunch", key=key)()).get_result()) for key in ("one", "two")]
        run.cancel()
        await within(run)  # it returns: a client may suppress CancelledError, but need not

    assert results == [("who asked", "who asked"), ("nothing", "nothing")]


async def test_a_task_that_runs_out_of_time_says_so(docket: Docket) -> None:
    async def dawdle(timeout: Timeout = Timeout(timedelta(milliseconds=50))) -> None:
        await asyncio.sleep(30)

    execution = await docket.add(dawdle, key="too-slow")()
    await run_everything(docket)

    with pytest.raises(TimeoutError, match=r"dawdle\{too-slow\} took longer than its Timeout of 50ms"):
        await execution.get_result()


async def test_a_task_that_got_more_time_says_how_much_it_had(docket: Docket) -> None:
    async def dawdle(timeout: Timeout = Timeout(timedelta(milliseconds=150))) -> None:
        timeout.extend(timedelta(milliseconds=50))
        await asyncio.sleep(30)

    execution = await docket.add(dawdle)()
    await run_everything(docket)

    with pytest.raises(TimeoutError, match=r"Timeout of 0\.2s"):
        await execution.get_result()


async def test_a_time_out_of_the_body_itself_keeps_its_own_words(docket: Docket) -> None:
    async def call_somebody(timeout: Timeout = Timeout(timedelta(seconds=30))) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(30)

    execution = await docket.add(call_somebody)()
    await run_everything(docket)

    with pytest.raises(TimeoutError) as caught:
        await execution.get_result()
    assert not caught.value.args


@pytest.fixture
async def forgetful(name: str, url: str) -> AsyncGenerator[Docket]:
    """A docket of the kind that Prefect opens: no record outlives its task."""
    async with Docket(name=name, url=url, execution_ttl=timedelta(0)) as docket:
        yield docket


async def test_services_that_are_seeded_and_added_by_hand_run_as_one_chain_each(forgetful: Docket) -> None:
    runs: dict[str, int] = {"monitor_late_runs": 0, "monitor_expired_leases": 0}
    at_once: list[int] = []
    inside = 0

    async def turn(name: str) -> None:
        nonlocal inside
        inside += 1
        at_once.append(inside)
        await asyncio.sleep(0.01)
        inside -= 1
        runs[name] += 1

    async def monitor_late_runs(
        perpetual: Perpetual = Perpetual(automatic=True, every=timedelta(milliseconds=20)),
    ) -> None:
        await turn("monitor_late_runs")

    async def monitor_expired_leases(
        perpetual: Perpetual = Perpetual(automatic=False, every=timedelta(milliseconds=20)),
    ) -> None:
        await turn("monitor_expired_leases")

    services = [monitor_late_runs, monitor_expired_leases]
    async with worker_for(forgetful) as worker:
        for service in services:
            forgetful.register(service)
            assert get_single_dependency_parameter_of_type(service, Perpetual) is not None
            await forgetful.add(service, key=service.__name__)()

        async with running(worker):
            await eventually(lambda: min(runs.values()) >= 5, "each service has run five times")

    assert max(at_once) <= len(services)
    snapshot = await forgetful.snapshot()
    assert sorted(execution.key for execution in snapshot.future) == sorted(runs)


async def test_a_service_that_fails_goes_on(forgetful: Docket, caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []
    went_on = asyncio.Event()

    async def schedule_deployments(
        perpetual: Perpetual = Perpetual(automatic=True, every=timedelta(milliseconds=10)),
    ) -> None:
        runs.append(len(runs))
        if len(runs) == 3:
            went_on.set()
        raise RuntimeError("database is locked")

    forgetful.register(schedule_deployments)
    with caplog.at_level(logging.ERROR, "docket.worker"):
        async with worker_for(forgetful) as worker, running(worker):
            await within(went_on.wait())

    # Prefect hides the errors of a busy database by the exception that the record carries.
    errors = [record for record in caplog.records if record.name == "docket.worker" and record.exc_info]
    assert errors
    assert all(record.exc_info and isinstance(record.exc_info[1], RuntimeError) for record in errors)


marked: list[str] = []


async def mark_late(
    run: Annotated[str, Logged], *, session: str = Depends(lambda: "session"), retry: Retry = Retry(attempts=2)
) -> None:
    if retry.attempt == 1:
        raise RuntimeError("once more")
    marked.append(run)


collection: list[Callable[..., Any]] = [mark_late]


async def test_a_service_floods_the_docket_with_tasks_of_a_collection(forgetful: Docket) -> None:
    run = uuid4().hex

    async def monitor(
        docket: Docket = CurrentDocket(), perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=5))
    ) -> None:
        await docket.add(mark_late, key=f"mark-late:{run}")(run)
        await docket.add(mark_late, key=f"mark-late:{run}")(run)
        perpetual.cancel()

    forgetful.register_collection(f"{__name__}:collection")
    await forgetful.add(monitor, key="monitor")()
    await run_everything(forgetful)

    assert marked.count(run) == 1
    assert await forgetful.get_execution(f"mark-late:{run}") is None


async def test_a_deadline_that_is_set_again_fires_once(forgetful: Docket) -> None:
    fired: list[int] = []

    async def time_out(attempt: int) -> None:
        fired.append(attempt)

    forgetful.register(time_out)
    for attempt in range(3):
        await forgetful.replace(time_out, when=later(), key="timeout:run")(attempt)
    await forgetful.replace(time_out, when=later() - timedelta(hours=2), key="timeout:run")(3)
    await run_everything(forgetful)

    assert fired == [3]


async def test_a_second_server_on_the_same_docket_does_not_double_the_services(name: str, url: str) -> None:
    runs: list[Execution] = []
    enough = asyncio.Event()

    async def monitor(perpetual: Perpetual = Perpetual(automatic=True, every=timedelta(milliseconds=10))) -> None:
        runs.append(current_execution.get())
        if len(runs) == 6:
            enough.set()

    async def serve(docket: Docket) -> None:
        async with Worker(docket) as worker:
            docket.register(monitor)
            await docket.add(monitor, key="monitor")()
            await worker.run_forever()

    async with (
        Docket(name=name, url=url, execution_ttl=timedelta(0)) as first,
        Docket(name=name, url=url, execution_ttl=timedelta(0)) as second,
    ):
        servers = [asyncio.create_task(serve(docket), name=f"a server of {name}") for docket in (first, second)]
        await within(enough.wait())
        for server in servers:
            server.cancel()
        await within(asyncio.gather(*servers))
        snapshot = await first.snapshot()

    assert [execution.key for execution in snapshot.future] == ["monitor"]
