"""Tasks that are due later."""

from __future__ import annotations

from .base import Producer, Work
from .body import body


async def scheduled(token: str) -> None:
    with body(token):
        pass


class Scheduled(Work):
    name = "scheduled"
    share = 14.0
    functions = (scheduled,)

    async def produce(self, producer: Producer) -> None:
        await producer.add(scheduled, producer.new_token(), when=producer.after(0.1, 6.0))
