"""Waiting in tests: for a condition, for an awaitable,
for a state of a task. Each wait has a time limit.

The limit only ends what hangs. It is not a measure: on
a busy machine a process takes half a minute to start.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar, overload

from docket import Docket, Execution, ExecutionState

T = TypeVar("T")

SECONDS = 180.0
WAIT_LIMIT = timedelta(seconds=SECONDS)
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05


def _longer(pause: float) -> float:
    """Most conditions hold soon. A test that waits for long
    leaves the processor to those for which it waits."""
    return min(pause * 1.1, _LONGEST_PAUSE)


@overload
async def eventually(
    condition: Callable[[], Awaitable[T]],
    what: str,
    seconds: float = ...,
    *,
    seen: Callable[[], object] | None = ...,
) -> T: ...


@overload
async def eventually(
    condition: Callable[[], T], what: str, seconds: float = ..., *, seen: Callable[[], object] | None = ...
) -> T: ...


async def eventually(
    condition: Callable[[], Any],
    what: str,
    seconds: float = SECONDS,
    *,
    seen: Callable[[], object] | None = None,
) -> Any:
    """Returns the first true value of the condition, which may be a coroutine function.

    It polls, so it is for changes that no event announces. The failure names `what` and shows what
    was seen last: the value of `seen`, or else of the condition.
    """
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while True:
        found = condition()
        value = await found if isinstance(found, Awaitable) else found
        if value:
            return value
        assert time.monotonic() < deadline, _failure(what, seconds, seen() if seen else value)
        await asyncio.sleep(pause)
        pause = _longer(pause)


def eventually_blocking(
    condition: Callable[[], T],
    what: str,
    seconds: float = SECONDS,
    *,
    seen: Callable[[], object] | None = None,
) -> T:
    """The same for tests without an event loop."""
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while not (value := condition()):
        assert time.monotonic() < deadline, _failure(what, seconds, seen() if seen else value)
        time.sleep(pause)
        pause = _longer(pause)
    return value


def _failure(what: str, seconds: float, last: object) -> str:
    return f"after {seconds:g} s still not: {what}. Seen last: {last}"


async def within(awaitable: Awaitable[T], seconds: float = SECONDS) -> T:
    async with asyncio.timeout(seconds):
        return await awaitable


async def ends(run: Awaitable[None], seconds: float = SECONDS) -> None:
    """Waits for a worker's run to end by itself, and passes its exception on.

    A worker takes a cancellation as the wish to stop and
    returns, so a plain time-out round it would go unnoticed.
    """
    task = asyncio.ensure_future(run)
    _, pending = await asyncio.wait([task], timeout=seconds)
    if pending:
        task.cancel()
        await asyncio.wait([task], timeout=seconds)
        raise AssertionError(f"{task} did not end within {seconds:g} s")
    await task


async def reaches(execution: Execution, state: ExecutionState) -> None:
    async def is_there() -> bool:
        await execution.sync()
        return execution.state is state

    await eventually(is_there, f"{execution.key} is {state.value}")


async def wait_until_scheduled(docket: Docket, key: str) -> Execution:
    """The task that is scheduled under this key, once it is there."""

    async def found() -> Execution | None:
        execution = await docket.get_execution(key)
        return execution if execution is not None and execution.state is ExecutionState.SCHEDULED else None

    execution = await eventually(found, f"{key} is scheduled")
    assert execution is not None
    return execution
