"""Tasks that fail, some of them until their last attempt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from docket import Retry

from .base import COMPLETED, FAILED, Producer, Work
from .body import body

ATTEMPTS = 3
DELAY_SECONDS = 0.4


class Refused(Exception):
    """The error of a run that fails on purpose."""


async def retried(
    token: str, failures: int, retry: Retry = Retry(attempts=ATTEMPTS, delay=timedelta(seconds=DELAY_SECONDS))
) -> int:
    with body(token):
        if retry.attempt <= failures:
            raise Refused(f"attempt {retry.attempt}")
    return retry.attempt


class Retried(Work):
    name = "retrying"
    share = 5.0
    functions = (retried,)

    async def produce(self, producer: Producer) -> None:
        await producer.add(retried, producer.new_token(), producer.random.randrange(ATTEMPTS + 1))

    def endings(self, function: str, args: Sequence[Any]) -> set[str]:
        return {COMPLETED if args[0] < ATTEMPTS else FAILED}
