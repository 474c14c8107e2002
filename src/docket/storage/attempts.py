"""One attempt at a time, however many wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

T = TypeVar("T")


class SharedAttempt(Generic[T]):
    """All who join while an attempt is under way get its result, or its failure. A caller that is cancelled ends only its
    own wait. An attempt ends after so many seconds."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]], seconds: float, name: str) -> None:
        self._make = make
        self._seconds = seconds
        self._name = name
        self._task: asyncio.Task[T] | None = None

    async def join(self) -> T:
        task = self._task
        if task is None:
            task = self._task = asyncio.create_task(self._attempt(), name=self._name)
            task.add_done_callback(self._ended)
        await asyncio.wait([task])
        if task.cancelled():
            raise RedisConnectionError("the connection was closed")
        return task.result()

    async def _attempt(self) -> T:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._make()
        except TimeoutError:
            raise RedisTimeoutError(f"no answer within {self._seconds:g} s") from None

    def stop(self) -> None:
        task = self._task
        if task is not None and not task.get_loop().is_closed():
            task.cancel()

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if not task.cancelled():
            # Those who wait have it; if nobody does, nobody needs to know.
            task.exception()
