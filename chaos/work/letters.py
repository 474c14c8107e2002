"""Tasks that fail for good, and work when their dead letter is retried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from docket import CurrentExecution, Execution

from .base import COMPLETED, FAILED, Producer, Work
from .body import body

TRIES = 10


class FailedForGood(Exception):
    """The error of a task that fails on purpose."""


async def mended(token: str, execution: Execution = CurrentExecution()) -> None:
    """The generation of a task that was retried is higher."""
    with body(token, step=execution.generation):
        if execution.generation == 1:
            raise FailedForGood(token)


class Letters(Work):
    name = "failing for good"
    share = 3.0
    functions = (mended,)

    async def produce(self, producer: Producer) -> None:
        token = producer.new_token()
        if not await producer.add(mended, token):
            return
        for _ in range(TRIES):
            await producer.sleep(0.2, 1.0)
            if await producer.retry(token):
                return

    def endings(self, function: str, args: Sequence[Any]) -> set[str]:
        return {COMPLETED, FAILED}
