"""Tasks that a worker does not know."""

from typing import Any

import pytest

from docket import CurrentExecution, Depends, Docket, Execution, ExecutionState
from docket.worker import default_fallback_task
from tests.running import run_everything


async def stranger(*args: object, **kwargs: object) -> str:
    return "never called here"


async def test_an_unknown_task_goes_to_the_fallback_with_its_arguments(docket: Docket) -> None:
    seen: list[object] = []

    async def fallback(*args: Any, execution: Execution = CurrentExecution(), **kwargs: Any) -> None:
        seen.extend([execution.function_name, execution.key, args, kwargs])

    await docket.add(stranger, key="k")(1, two=2)
    async with Docket(name=docket.name, url=docket.url) as elsewhere:
        await run_everything(elsewhere, fallback_task=fallback)

    assert seen == ["stranger", "k", (1,), {"two": 2}]


async def test_what_the_fallback_returns_is_the_result(docket: Docket) -> None:
    async def fallback(*args: Any, execution: Execution = CurrentExecution(), **kwargs: Any) -> str:
        return f"handled {execution.function_name}"

    execution = await docket.add(stranger)()
    async with Docket(name=docket.name, url=docket.url) as elsewhere:
        await run_everything(elsewhere, fallback_task=fallback)

    assert await execution.get_result() == "handled stranger"


async def test_an_unknown_task_without_a_fallback_does_not_hold_up_the_others(docket: Docket) -> None:
    ran: list[str] = []

    async def known() -> None:
        ran.append("known")

    await docket.add(stranger)()
    await docket.add(known)()
    async with Docket(name=docket.name, url=docket.url) as elsewhere:
        elsewhere.register(known)
        await run_everything(elsewhere)

    assert ran == ["known"]


async def test_a_fallback_that_fails_fails_the_task(docket: Docket) -> None:
    async def fallback(*args: Any, **kwargs: Any) -> None:
        raise LookupError("still unknown")

    execution = await docket.add(stranger)()
    async with Docket(name=docket.name, url=docket.url) as elsewhere:
        await run_everything(elsewhere, fallback_task=fallback)
    await execution.sync()

    assert execution.state == ExecutionState.FAILED


async def test_a_known_task_does_not_go_to_the_fallback(docket: Docket) -> None:
    ran: list[str] = []

    async def known() -> None:
        ran.append("known")

    async def fallback(*args: Any, **kwargs: Any) -> None:
        ran.append("fallback")

    await docket.add(known)()
    await run_everything(docket, fallback_task=fallback)

    assert ran == ["known"]


async def test_the_fallback_gets_its_own_dependencies_beside_any_number_of_arguments(
    docket: Docket, name: str, url: str
) -> None:
    seen: list[object] = []

    async def unknown(a: int, b: int, c: int) -> None: ...

    async def opened() -> str:
        return "opened"

    async def catch(
        *args: Any, execution: Execution = CurrentExecution(), resource: str = Depends(opened), **kwargs: Any
    ) -> None:
        seen.extend([args, execution.key, resource, kwargs])

    await docket.add(unknown, key="k")(1, 2, c=3)
    async with Docket(name=name, url=url) as elsewhere:
        await run_everything(elsewhere, fallback_task=catch)

    assert seen == [(1, 2), "k", "opened", {"c": 3}]


async def test_the_default_fallback_warns_and_completes_the_task(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    execution = await docket.add(stranger)(1, execution="an argument of its own")
    async with Docket(name=docket.name, url=docket.url) as elsewhere:
        await run_everything(elsewhere, fallback_task=default_fallback_task)
    await execution.sync()

    assert execution.state == ExecutionState.COMPLETED
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert warning.name == "docket.worker"
    assert warning.getMessage().startswith("Unknown task 'stranger'")
