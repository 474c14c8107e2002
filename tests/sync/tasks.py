"""The tasks that workers of these tests know."""

from __future__ import annotations

import asyncio
from typing import Any

from docket import ExecutionProgress, Progress


async def double(number: int) -> int:
    return 2 * number


async def refuse(reason: str) -> None:
    raise LookupError(reason)


async def echo(value: Any) -> Any:
    return value


async def climb(steps: int, progress: ExecutionProgress = Progress()) -> None:
    await progress.set_total(steps)
    for _ in range(steps):
        await progress.increment()


async def stay() -> None:
    await asyncio.Event().wait()


TASKS = [double, refuse, echo, climb, stay]
