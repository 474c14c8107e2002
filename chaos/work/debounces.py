"""Bursts of tasks of which one runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

from docket import Debounce

from .base import CANCELLED, COMPLETED, Producer, Work
from .body import body

SETTLE_SECONDS = 0.5
GROUPS = 3


async def debounced(token: str, group: Annotated[int, Debounce(timedelta(seconds=SETTLE_SECONDS))]) -> None:
    with body(token, group=group):
        pass


class Debounced(Work):
    name = "debounced"
    share = 0.8
    functions = (debounced,)

    async def produce(self, producer: Producer) -> None:
        group = producer.random.randrange(GROUPS)
        for _ in range(producer.random.randint(2, 4)):
            await producer.add(debounced, producer.new_token(), group)
            await producer.sleep(0.0, SETTLE_SECONDS / 2)

    def endings(self, function: str, args: Sequence[Any]) -> set[str]:
        # Those that another submission of the burst overtakes are dropped.
        return {COMPLETED, CANCELLED}
