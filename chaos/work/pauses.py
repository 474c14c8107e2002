"""Tasks that are paused for a while: by their function, or by an argument."""

from __future__ import annotations

from typing import Any

from .base import Producer, Work
from .body import body
from .limits import limited

HELD = 8


async def pausable(token: str, group: int, number: int) -> None:
    """Paused by its argument `group`, which is the piece of work that the task belongs to; `number`
    is its place there."""
    with body(token, group=group, number=number):
        pass


async def pausable_as_a_whole(token: str, group: int, number: int) -> None:
    """Paused by its name."""
    with body(token, group=group, number=number):
        pass


class Paused(Work):
    """A pause that stays for a moment, with tasks before and during it. They are added one after
    the other, so their order is known. Tasks of `limited` come from another kind of work."""

    name = "paused"
    share = 0.8
    functions = (pausable, pausable_as_a_whole)

    async def produce(self, producer: Producer) -> None:
        # A number that no other piece of work uses: the pause of another one must not be about it.
        group = producer.random.randrange(2**40)
        function = producer.random.choice([pausable, pausable_as_a_whole])
        rule: tuple[Any, ...] = (pausable, "group", group) if function is pausable else (pausable_as_a_whole,)
        for number in range(3):
            await producer.add(function, producer.new_token(), group, number)
        await producer.pause(*rule)
        for number in range(3, HELD):
            await producer.add(function, producer.new_token(), group, number)
        await producer.sleep(0.3, 1.0)
        while not await producer.resume(*rule):
            await producer.sleep(0.2, 0.5)
        await producer.add(function, producer.new_token(), group, HELD)


class PausedLimit(Work):
    """A pause of tasks with a limit, which must hold all the same."""

    name = "paused limit"
    share = 0.1

    async def produce(self, producer: Producer) -> None:
        await producer.pause(limited)
        await producer.sleep(0.3, 1.0)
        while not await producer.resume(limited):
            await producer.sleep(0.2, 0.5)
