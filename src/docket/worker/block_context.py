"""What the code inside `async with Worker(…)` sees of the worker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from contextvars import ContextVar, Token
from typing import Any


class BlockContext:
    """Context variables that have these values inside
    the block, and the values from before after it."""

    def __init__(self, variables: Iterable[tuple[ContextVar[Any], Any]]) -> None:
        self._before: list[tuple[ContextVar[Any], Token[Any]]] = []
        for variable, value in variables:
            self._before.append((variable, variable.set(value)))

    def leave(self) -> None:
        for variable, token in reversed(self._before):
            # A block may be left in another context than it was entered in (test fixtures,
            # frameworks): that one has nothing to restore.
            with contextlib.suppress(ValueError):
                variable.reset(token)
