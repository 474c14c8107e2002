"""Another kind of function needs a runtime and a line in the table: every call of a task goes
through its function's runtime."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from docket import Docket, TaskKey, Timeout
from docket.execution import TaskFunction, functions
from tests.running import run_with_defaults


class InTheLoop:
    """Runs functions of this module that are not async in the event loop."""

    def accepts(self, function: Callable[..., Any]) -> bool:
        return function in (plain, with_dependency, with_timeout)

    def bind(self, function: Callable[..., Any]) -> TaskFunction:
        @functools.wraps(function)
        async def in_loop(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return in_loop


@pytest.fixture
def in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "RUNTIMES", [InTheLoop(), *functions.RUNTIMES])


def plain(number: int) -> tuple[int, bool]:
    return number, threading.current_thread() is threading.main_thread()


def with_dependency(number: int, key: str = TaskKey()) -> tuple[int, bool]:
    return plain(number)


def with_timeout(number: int, timeout: Timeout = Timeout(timedelta(minutes=1))) -> tuple[int, bool]:
    return plain(number)


@pytest.mark.parametrize("function", [plain, with_dependency, with_timeout])
@pytest.mark.usefixtures("in_the_loop")
async def test_a_task_runs_where_the_runtime_of_its_function_runs_it(
    docket: Docket, function: Callable[[int], Any]
) -> None:
    docket.register(function)
    execution = await docket.add(function)(7)
    await run_with_defaults(docket)
    assert await execution.get_result() == (7, True)


async def test_an_async_function_is_called_as_it_is(docket: Docket) -> None:
    async def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    execution = await docket.add(where)()
    await run_with_defaults(docket)
    assert await execution.get_result() is True
