"""Waiting for something to become true, with a deadline."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

SECONDS = 90.0


async def until(condition: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """The first true value of the condition, which may be a coroutine function; fails if there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        await asyncio.sleep(0.02)
