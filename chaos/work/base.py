"""One kind of work: the functions that workers run,
how producers add them, and how they may end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from random import Random
from typing import Any, Protocol

Function = Callable[..., Any]

COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"


class Producer(Protocol):
    """Adds the tasks of a kind of work. Each call writes the request into the history
    before it is sent, and the answer after it. The result says whether the server accepted it."""

    random: Random

    def new_token(self) -> str: ...

    async def add(
        self, function: Function, token: str, *args: Any, when: datetime | None = None, key: str | None = None
    ) -> bool: ...

    async def add_with_generated_key(self, function: Function, token: str, *args: Any) -> bool: ...

    async def replace(self, function: Function, token: str, *args: Any, when: datetime, key: str) -> bool: ...

    async def cancel(self, key: str) -> bool: ...

    async def retry(self, key: str) -> bool: ...

    async def strike(self, function: Function, parameter: str, value: Any) -> bool: ...

    async def restore(self, function: Function, parameter: str, value: Any) -> bool: ...

    async def pause(self, function: Function, parameter: str | None = None, value: Any = None) -> bool: ...

    async def resume(self, function: Function, parameter: str | None = None, value: Any = None) -> bool: ...

    async def sleep(self, least: float, most: float) -> None: ...

    def after(self, least: float, most: float) -> datetime: ...


class Work:
    """One kind of work. A subclass is a file in this folder and a line in `WORK`.

    The first argument of every function is a token:
    the name of the request that the run belongs to.
    """

    name: str = ""
    # The part of the load that is of this kind, relative to the other kinds.
    share: float = 0.0
    functions: Sequence[Function] = ()

    async def begin(self, producer: Producer) -> None:
        """Called once by each producer before it adds anything else."""

    async def produce(self, producer: Producer) -> None:
        """Adds one piece of work."""

    def endings(self, function: str, args: Sequence[Any]) -> set[str]:
        """The states in which a task may end, if no operator cancels or strikes it."""
        return {COMPLETED}

    # The keys of tasks that never end by themselves. The drain cancels them.
    endless: Sequence[str] = ()
