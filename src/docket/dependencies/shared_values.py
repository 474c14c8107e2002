"""Values that live as long as the worker (`Shared`)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Any

from uncalled_for import SharedContext


class SharedValues:
    """The scope of `Shared` dependencies. A worker has one scope, which all its runs see, whatever
    context they start in."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._resolved: dict[Any, Any] = {}

    def enter_context(self) -> None:
        """Makes the scope visible in the context of the current run."""
        SharedContext.stack.set(self._stack)
        SharedContext.lock.set(self._lock)
        SharedContext.resolved.set(self._resolved)

    def variables(self) -> list[tuple[ContextVar[Any], Any]]:
        """The context variables of the scope and their values, for `BlockContext` to set."""
        return [
            (SharedContext.stack, self._stack),
            (SharedContext.lock, self._lock),
            (SharedContext.resolved, self._resolved),
        ]

    async def aclose(self) -> None:
        self._resolved.clear()
        await self._stack.aclose()
