"""A rule: a function from the model of a run to the violations that it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from chaos.model import Model


@dataclass(frozen=True)
class Violation:
    """A broken promise: what is wrong, when it was seen,
    and the task and the processes that it concerns."""

    text: str
    at: float
    key: str | None = None
    processes: tuple[str, ...] = ()


# The name of the function is the name of the rule, its docstring the promise.
Rule = Callable[[Model], Iterable[Violation]]
