"""Plain tasks: short, long, and with a megabyte of arguments or of result."""

from __future__ import annotations

import asyncio

from .base import Producer, Work
from .body import body

MEGABYTE = 1_000_000


async def plain(token: str, seconds: float = 0.0) -> None:
    """Takes the shortest path through a worker: no dependency, no result."""
    with body(token):
        await asyncio.sleep(seconds)


async def valued(token: str, seconds: float) -> str:
    """Returns the name of its run."""
    with body(token) as run:
        await asyncio.sleep(seconds)
    return run


async def large(token: str, data: bytes, size: int) -> bytes:
    """Large arguments and a large result."""
    with body(token):
        assert len(data) in (0, MEGABYTE)
    return bytes(size)


class Plain(Work):
    name = "plain"
    share = 50.0
    functions = (plain,)

    async def produce(self, producer: Producer) -> None:
        add = producer.random.choice([producer.add, producer.add_with_generated_key])
        await add(plain, producer.new_token(), round(producer.random.uniform(0, 0.05), 4))


class Valued(Work):
    name = "with a result"
    share = 8.0
    functions = (valued,)

    async def produce(self, producer: Producer) -> None:
        seconds = producer.random.choice([0.0, 0.02, 0.1, 0.5, 1.0])
        await producer.add(valued, producer.new_token(), seconds)


class ThreeSeconds(Work):
    """Longer than a lease."""

    name = "three seconds"
    share = 0.5
    functions = ()

    async def produce(self, producer: Producer) -> None:
        await producer.add(valued, producer.new_token(), 3.0)


class Long(Work):
    """Longer than several leases, one after the other."""

    name = "long"
    share = 0.3
    functions = ()

    async def produce(self, producer: Producer) -> None:
        await producer.add(valued, producer.new_token(), 9.0)


class Large(Work):
    """Rare, because the server keeps the records of all tasks until the end."""

    name = "a megabyte"
    share = 0.4
    functions = (large,)

    async def produce(self, producer: Producer) -> None:
        is_argument = producer.random.random() < 0.6
        data, size = (producer.random.randbytes(MEGABYTE), 10) if is_argument else (b"", MEGABYTE)
        await producer.add(large, producer.new_token(), data, size)
