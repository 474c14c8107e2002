"""Tasks that are cancelled, replaced or struck."""

from __future__ import annotations

import asyncio

from .base import Producer, Work
from .body import body

NUMBERS = 3


async def cancellable(token: str, seconds: float) -> None:
    with body(token):
        await asyncio.sleep(seconds)


async def replaceable(token: str, seconds: float) -> None:
    with body(token):
        await asyncio.sleep(seconds)


async def strikable(token: str, number: int) -> None:
    with body(token, number=number):
        pass


class Cancelled(Work):
    name = "cancelled"
    share = 3.0
    functions = (cancellable,)

    async def produce(self, producer: Producer) -> None:
        token = producer.new_token()
        if producer.random.random() < 0.5:
            added = await producer.add(cancellable, token, 0.0, when=producer.after(0.5, 3.0))
        else:
            added = await producer.add(cancellable, token, 5.0)
        if added:
            await producer.sleep(0.05, 2.0)
            await producer.cancel(token)


class Replaced(Work):
    name = "replaced"
    share = 3.0
    functions = (replaceable,)

    async def produce(self, producer: Producer) -> None:
        key = producer.new_token()
        seconds = producer.random.choice([0.0, 0.0, 1.0])
        if not await producer.add(replaceable, key, seconds, when=producer.after(0.0, 2.0), key=key):
            return
        for _ in range(producer.random.randint(1, 2)):
            await producer.sleep(0.05, 1.0)
            when = producer.after(0.0, 2.0)
            await producer.replace(replaceable, producer.new_token(), seconds, when=when, key=key)


class Struck(Work):
    """A strike that stays for a few seconds, with tasks before, during and after it."""

    name = "struck"
    share = 0.5
    functions = (strikable,)

    async def produce(self, producer: Producer) -> None:
        # A number that no other piece of work uses: a
        # strike of another one must not change this one.
        number = producer.random.randrange(2**40)
        for _ in range(NUMBERS):
            await producer.add(strikable, producer.new_token(), number)
            await producer.add(strikable, producer.new_token(), number, when=producer.after(3.5, 4.5))
        if not await producer.strike(strikable, "number", number):
            return
        await producer.sleep(5.0, 6.0)
        while not await producer.restore(strikable, "number", number):
            await producer.sleep(0.5, 1.0)
        await producer.add(strikable, producer.new_token(), number)
