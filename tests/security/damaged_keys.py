"""Every key of a docket, with data in it, and the ways in which somebody may damage it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from docket import ConcurrencyLimit, Cooldown, Debounce, Docket, Perpetual, RateLimit, Retry
from docket.storage.keys import OWN_NAMES
from docket.storage.schema.keys import ALL
from tests.running import at_work, worker_for
from tests.waiting import eventually

FAMILIES = OWN_NAMES
TYPES = {known.name: known.type for known in ALL}
GARBAGE = b"\xff\xc1 not what docket wrote \x00\x01"
# In place of numbers.
ODD_NUMBERS = (b"nan", b"inf", b"-1", b"1e300", b"99999999999999999999")

Damage = Callable[[Any, str, str], Awaitable[None]]


async def other_type(redis: Any, key: str, type: str) -> None:
    await redis.delete(key)
    if type == "string":
        await redis.rpush(key, GARBAGE)
    else:
        await redis.set(key, GARBAGE)


async def garbage(redis: Any, key: str, type: str) -> None:
    match type:
        case "string":
            await redis.set(key, GARBAGE)
        case "list":
            await redis.rpush(key, GARBAGE, b"")
        case "set":
            await redis.sadd(key, GARBAGE, b"")
        case "zset":
            await redis.zadd(key, {GARBAGE: 1, b"x": "inf", b"y": "-inf"})
        case "stream":
            await redis.xadd(key, {GARBAGE: GARBAGE})
            await redis.xadd(key, {b"k": GARBAGE})
        case _:
            await redis.hset(
                key, mapping={**dict.fromkeys(await redis.hkeys(key), GARBAGE), GARBAGE: GARBAGE, b"": b""}
            )


async def truncated(redis: Any, key: str, type: str) -> None:
    if type == "string":
        value = await redis.get(key) or b"12345678"
        await redis.set(key, value[: len(value) // 2])
    elif type == "hash" and (values := await redis.hgetall(key)):
        await redis.hset(key, mapping={field: value[: len(value) // 2] for field, value in values.items()})


def odd_number(text: bytes) -> Damage:
    async def odd(redis: Any, key: str, type: str) -> None:
        if type == "string":
            await redis.set(key, text)
        elif type == "hash" and (fields := await redis.hkeys(key)):
            await redis.hset(key, mapping=dict.fromkeys(fields, text))

    return odd


DAMAGES: dict[str, Damage] = {
    "garbage": garbage,
    "truncated": truncated,
    **{text.decode(): odd_number(text) for text in ODD_NUMBERS},
    "other type": other_type,
}


async def keys_of(docket: Docket, redis: Any, family: str) -> list[str]:
    """The keys of a family; a name that none of them has, if there is none."""
    name = docket.key(family)
    if not family.endswith(":="):
        return [name]
    found = [key.decode() async for key in redis.scan_iter(match=f"{name}*", count=1000)]
    return found or [f"{name}x"]


# Tasks that leave something in most keys.

STARTS: Counter[str] = Counter()


async def plain(name: str) -> str:
    STARTS[name] += 1
    return name


async def limited(name: str, limit: ConcurrencyLimit = ConcurrencyLimit(1)) -> str:
    STARTS[name] += 1
    return name


async def fails() -> None:
    raise ValueError("for good")


async def retries(retry: Retry = Retry(attempts=2)) -> None:
    raise ValueError("once more")


async def rated(name: str, limit: RateLimit = RateLimit(100, per=timedelta(seconds=1))) -> str:
    STARTS[name] += 1
    return name


async def cooled(cooldown: Cooldown = Cooldown(timedelta(milliseconds=1))) -> None: ...


async def debounced(debounce: Debounce = Debounce(timedelta(milliseconds=10))) -> None: ...


async def held() -> None: ...


async def struck() -> None: ...


async def chain(perpetual: Perpetual = Perpetual(every=timedelta(hours=1), automatic=True)) -> None: ...


# A task that runs until the test lets it go.


class Gate:
    """Each test has an event loop of its own, so each needs an event of its own."""

    def __init__(self) -> None:
        self._open = asyncio.Event()

    def close(self) -> None:
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    async def wait(self) -> None:
        await self._open.wait()


GATE = Gate()


async def waits(name: str) -> str:
    STARTS[name] += 1
    await GATE.wait()
    return name


async def waits_with_slot(name: str, limit: ConcurrencyLimit = ConcurrencyLimit(1)) -> str:
    STARTS[name] += 1
    await GATE.wait()
    return name


TASKS = (
    *(plain, limited, fails, retries, rated, cooled, debounced, held, struck, chain),
    *(waits, waits_with_slot),
)


def register_all(docket: Docket) -> None:
    for function in TASKS:
        docket.register(function)


async def fill(docket: Docket) -> None:
    """Leaves data in most keys of the docket."""
    register_all(docket)
    await docket.strike("struck")
    await docket.pause(held)
    async with worker_for(docket) as worker, at_work(worker):
        tasks = [
            await docket.add(plain)("x" * 10_000),
            await docket.add(fails)(),
            await docket.add(retries)(),
            await docket.add(rated)("rated"),
            await docket.add(cooled)(),
            await docket.add(debounced)(),
            await docket.add(held)(),
            *[await docket.add(limited)(f"limited {number}") for number in range(3)],
        ]

        async def all_ended() -> bool:
            for task in tasks[:-4]:
                await task.sync()
            return all(task.state.finished for task in tasks[:-4])

        await eventually(all_ended, "the first tasks have ended")
    await docket.add(plain, when=datetime.now(UTC) + timedelta(hours=1))("x" * 10_000)
    await docket.add(plain)("y" * 10_000)
