"""The tasks that workers of these tests know."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from docket import ExecutionProgress, Progress, Retry


async def double(number: int) -> int:
    return 2 * number


async def refuse(reason: str) -> None:
    raise LookupError(reason)


async def refuse_for_now(retry: Retry = Retry(attempts=2, delay=timedelta(hours=1))) -> None:
    raise LookupError("not yet")


async def echo(value: Any) -> Any:
    return value


async def climb(steps: int, progress: ExecutionProgress = Progress()) -> None:
    await progress.set_total(steps)
    for _ in range(steps):
        await progress.increment()


async def stay() -> None:
    await asyncio.Event().wait()


TASKS = [double, refuse, refuse_for_now, echo, climb, stay]
