"""Readings that many visitors share: read once, however many people look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from docket.docket import Docket

T = TypeVar("T")


class _Reading(Generic[T]):
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.until = 0.0
        self.value: T | None = None


class Shared(Generic[T]):
    """One value per docket, read again when it is older than `lifetime`."""

    def __init__(self, lifetime: timedelta) -> None:
        self._seconds = lifetime.total_seconds()
        self._readings: WeakKeyDictionary[Docket, _Reading[T]] = WeakKeyDictionary()

    async def get(self, docket: Docket, read: Callable[[Docket], Awaitable[T]]) -> T:
        """The value, or the error of reading it. An error is not kept."""
        reading = self._readings.get(docket)
        if reading is None:
            reading = self._readings[docket] = _Reading()
        async with reading.lock:
            if reading.value is None or time.monotonic() >= reading.until:
                reading.value = await read(docket)
                reading.until = time.monotonic() + self._seconds
            return reading.value
