"""Tasks with limits: concurrency and rates."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated

from docket import ConcurrencyLimit, RateLimit

from .base import Producer, Work
from .body import body

MOST_AT_ONCE = 2
GROUPS = 4
MOST_PER_WINDOW = 6
WINDOW_SECONDS = 1.0


async def limited(token: str, group: Annotated[int, ConcurrencyLimit(MOST_AT_ONCE)], seconds: float) -> None:
    with body(token, group=group):
        await asyncio.sleep(seconds)


async def rated(
    token: str, rate: RateLimit = RateLimit(MOST_PER_WINDOW, per=timedelta(seconds=WINDOW_SECONDS))
) -> None:
    with body(token):
        pass


class Limited(Work):
    name = "concurrency limit"
    share = 6.0
    functions = (limited,)

    async def produce(self, producer: Producer) -> None:
        group = producer.random.randrange(GROUPS)
        await producer.add(limited, producer.new_token(), group, round(producer.random.uniform(0.02, 0.5), 3))


class Rated(Work):
    name = "rate limit"
    share = 2.5
    functions = (rated,)

    async def produce(self, producer: Producer) -> None:
        await producer.add(rated, producer.new_token())
