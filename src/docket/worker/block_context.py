"""The context variables inside an `async with Worker(…)` block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from contextvars import ContextVar, Token
from typing import Any


class BlockContext:
    """Sets context variables for the block, and restores their previous values after it."""

    def __init__(self, variables: Iterable[tuple[ContextVar[Any], Any]]) -> None:
        self._before: list[tuple[ContextVar[Any], Token[Any]]] = []
        for variable, value in variables:
            self._before.append((variable, variable.set(value)))

    def leave(self) -> None:
        for variable, token in reversed(self._before):
            # A block may be left in another context than it was entered in (by test fixtures and
            # frameworks). There is nothing to restore in that context.
            with contextlib.suppress(ValueError):
                variable.reset(token)
