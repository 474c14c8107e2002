"""Placeholders for functions that are not registered in this process."""

from __future__ import annotations

import functools
from typing import Any

from docket.errors import TaskNotRegistered

from .task_call import TaskFunction


@functools.lru_cache(maxsize=1024)
def unregistered_function(name: str) -> TaskFunction:
    """A function of that name that can be displayed but not run."""

    async def unknown(*args: Any, **kwargs: Any) -> None:
        raise TaskNotRegistered(f"no task is registered as {name!r} in this process")

    unknown.__name__ = unknown.__qualname__ = name
    return unknown
