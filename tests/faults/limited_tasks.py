"""Tasks with limits. They write down when they begin and
end, on the clock of the server that keeps the reports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Annotated, Any

import redis.asyncio

from docket import ConcurrencyLimit, Cooldown, Debounce, RateLimit, TaskKey

from .reports import VARIABLE

# Time and note in one step, so that notes are in the order of their times.
_NOTE = """
local time = redis.call('TIME')
redis.call('RPUSH', KEYS[1], time[1] .. '.' .. string.format('%06d', time[2]) .. ' ' .. ARGV[1])
"""


@dataclass(frozen=True)
class Note:
    at: float
    what: str
    key: str
    group: str
    pid: int


@cache
def _client() -> Any:
    return redis.asyncio.Redis.from_url(os.environ[VARIABLE])


async def note(what: str, key: str, group: Any, pid: int | None = None, client: Any = None) -> None:
    await (client or _client()).eval(_NOTE, 1, "limits", f"{what} {key} {group} {pid or os.getpid()}")


def read_notes(lines: list[bytes]) -> list[Note]:
    words = [line.decode().split() for line in lines]
    return [Note(float(at), what, key, group, int(pid)) for at, what, key, group, pid in words]


@asynccontextmanager
async def noted(key: str, group: Any) -> AsyncGenerator[None]:
    await note("begin", key, group)
    try:
        yield
    finally:
        await note("end", key, group)


async def slots(value: Annotated[int, ConcurrencyLimit(2)], seconds: float, key: str = TaskKey()) -> None:
    async with noted(key, value):
        await asyncio.sleep(seconds)


async def rated(n: int, key: str = TaskKey(), limit: RateLimit = RateLimit(3, per=timedelta(seconds=1))) -> None:
    await note("begin", key, "rated")


async def cooled(n: int, key: str = TaskKey(), cooldown: Cooldown = Cooldown(timedelta(minutes=1))) -> None:
    await note("begin", key, "cooled")


async def debounced(
    value: Annotated[int, Debounce(timedelta(seconds=1), latest=True)], n: int, key: str = TaskKey()
) -> None:
    async with noted(key, f"{value}/{n}"):
        await asyncio.sleep(0.2)


limited_tasks = [slots, rated, cooled, debounced]
