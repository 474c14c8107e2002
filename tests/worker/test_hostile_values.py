"""Values and behaviours that raise SystemExit and its like outside of a body: the fault of their
task, and of nobody else."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from docket import Docket, Execution, ExecutionState
from docket.dependencies import CompletionHandler, TaskOutcome
from docket.errors import TaskFailed, Undecodable
from tests.running import worker_at_work
from tests.waiting import eventually

LEAVING = [SystemExit, KeyboardInterrupt, GeneratorExit]


def leave(kind: type[BaseException]) -> None:
    raise kind("as asked")


class Leaves:
    """Raises when it is read, or when it is stored."""

    def __init__(self, kind: type[BaseException], *, stored: bool = False) -> None:
        self.kind, self.stored = kind, stored

    def __reduce__(self) -> tuple[Any, ...]:
        if self.stored:
            leave(self.kind)
        return leave, (self.kind,)


class LeavesAsError(Exception):
    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, (3,)


async def neighbour() -> str:
    return "well"


async def ends(execution: Execution) -> ExecutionState:
    async def ended() -> bool:
        await execution.sync()
        return execution.state.finished

    await eventually(ended, "it has ended")
    return execution.state


@pytest.mark.parametrize("kind", LEAVING)
async def test_arguments_that_raise_when_they_are_read_fail_their_task(
    docket: Docket, kind: type[BaseException]
) -> None:
    async def takes(value: object) -> None: ...

    async with worker_at_work(docket):
        bad = await docket.add(takes)(Leaves(kind))
        assert await ends(bad) is ExecutionState.FAILED
        assert await (await docket.add(neighbour)()).get_result() == "well"


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "read"])
@pytest.mark.parametrize("kind", LEAVING)
async def test_a_result_that_raises_when_it_is_stored_or_read_is_an_ordinary_error(
    docket: Docket, kind: type[BaseException], stored: bool
) -> None:
    async def gives() -> object:
        return Leaves(kind, stored=stored)

    async with worker_at_work(docket):
        bad = await docket.add(gives)()
        with pytest.raises(TypeError if stored else Undecodable):
            await bad.get_result()
        assert await (await docket.add(neighbour)()).get_result() == "well"


async def test_an_exception_that_exits_when_it_is_read_is_shown_instead(docket: Docket) -> None:
    async def fails() -> None:
        raise LeavesAsError("odd")

    async with worker_at_work(docket):
        with pytest.raises(TaskFailed, match="odd"):
            await (await docket.add(fails)()).get_result()
        assert await (await docket.add(neighbour)()).get_result() == "well"


@pytest.mark.parametrize("kind", LEAVING)
async def test_a_behaviour_that_exits_after_the_run_does_not_end_the_worker(
    docket: Docket, kind: type[BaseException]
) -> None:
    runs: list[int] = []

    class Exits(CompletionHandler[Any]):
        async def __aenter__(self) -> Exits:
            return self

        async def on_complete(self, execution: Execution, outcome: TaskOutcome) -> bool:
            raise kind("as asked")

    async def task(behaviour: Exits = Exits()) -> None:
        runs.append(1)

    async with worker_at_work(docket):
        bad = await docket.add(task)()
        await eventually(lambda: runs, "it has run")
        assert await (await docket.add(neighbour)()).get_result() == "well"
        await docket.cancel(bad.key)


class HidesItsClass(Exception):
    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise RuntimeError("nobody may ask")


class HidesItsTraceback(Exception):
    @property
    def __traceback__(self) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("nobody may ask")


@pytest.mark.parametrize("kind", [HidesItsClass, HidesItsTraceback])
async def test_an_exception_that_raises_when_it_is_looked_at_fails_its_task_once(
    docket: Docket, kind: type[Exception]
) -> None:
    runs: list[None] = []

    async def raises() -> None:
        runs.append(None)
        raise kind("as asked")

    async with worker_at_work(docket):
        execution = await docket.add(raises)()
        assert await ends(execution) is ExecutionState.FAILED
        assert await (await docket.add(neighbour)()).get_result() == "well"
    assert len(runs) == 1
    assert execution.error == f"{kind.__name__}: as asked"
    letter = await docket.dead.get(execution.key)
    assert letter is not None
    assert letter.text == f"{kind.__name__}: as asked"
