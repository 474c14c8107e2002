"""Attempts that several callers share: at most one is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .faults import ServerSilent

K = TypeVar("K")
T = TypeVar("T")


class SharedAttempt(Generic[T]):
    """Every caller that joins while an attempt is under way gets its result or its error. A
    cancelled caller ends only its own wait. An attempt ends after `seconds`."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]], seconds: float, name: str) -> None:
        self._make = make
        self._seconds = seconds
        self._name = name
        self._task: asyncio.Task[T] | None = None
        self._began_at = 0.0

    @property
    def age(self) -> float:
        """Seconds since the attempt that is under way began; 0 if there is none."""
        return asyncio.get_running_loop().time() - self._began_at if self._task is not None else 0.0

    async def join(self) -> T:
        task = self._task
        if task is None:
            self._began_at = asyncio.get_running_loop().time()
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
            # The waiting callers have the error. Without a caller nothing needs to be reported.
            task.exception()


class SharedAttempts(Generic[K, T]):
    """One attempt at a time for each key."""

    def __init__(self, make: Callable[[K], Coroutine[Any, Any, T]], seconds: float, name: str) -> None:
        self._make = make
        self._seconds = seconds
        self._name = name
        self._attempts: dict[K, SharedAttempt[T]] = {}

    async def join(self, key: K) -> T:
        attempt = self._attempts.get(key)
        if attempt is None:
            attempt = self._attempts[key] = SharedAttempt(lambda: self._make(key), self._seconds, self._name)
        return await attempt.join()

    def stop(self) -> None:
        for attempt in self._attempts.values():
            attempt.stop()


class Turns:
    """Makes calls one after another. If a call cannot even connect in time, the calls that wait for
    their turn fail with it: their own attempts would take as long. On a slow link, where a call is
    sent and its answer is late, each call gets its own attempt."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._timeouts = 0

    async def call(self, make: Callable[[], Awaitable[T]]) -> T:
        timeouts = self._timeouts
        async with self._lock:
            if self._timeouts != timeouts:
                raise ServerSilent("no answer in time")
            try:
                return await make()
            except ServerSilent as error:
                if not error.maybe_stored:
                    self._timeouts += 1
                raise
