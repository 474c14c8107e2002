"""The arena that faults act on: the server, the places of
workers and producers, and a docket of their own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from chaos.histories import History
from chaos.processes import Place
from chaos.work.base import Producer


class ServerControl(Protocol):
    """A server."""

    def kill(self) -> None: ...

    def start(self) -> object: ...

    def pause(self) -> None: ...

    def wake(self) -> None: ...

    def run(self, *command: str | int | bytes) -> Any: ...


class ServerOwner(Protocol):
    """The servers of the run."""

    @property
    def node(self) -> ServerControl:
        """The server that has the data now."""
        ...


@dataclass
class Arena:
    """Everything that a fault may harm."""

    random: Random
    history: History
    servers: ServerOwner
    workers: Sequence[Place]
    producers: Sequence[Place]
    requests: Producer
    # One fault of the server at a time: a paused server cannot be flipped.
    server_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def server(self) -> ServerControl:
        return self.servers.node

    def seconds(self, least: float, most: float) -> float:
        return round(self.random.uniform(least, most), 2)

    @contextlib.asynccontextmanager
    async def fault(self, kind: str, *targets: str, **details: Any) -> AsyncGenerator[None]:
        """Writes the begin and the end of a fault. Without a target it harms everybody."""
        number = next(self._numbers)
        self.history.write("fault", number=number, fault=kind, targets=list(targets), **details)
        try:
            yield
        finally:
            self.history.write("healed", number=number)

    @contextlib.contextmanager
    def victim(self, places: Sequence[Place], *, ready: bool = False) -> Generator[Place | None]:
        """A place that no other fault harms now, or None if there is none."""
        free = [place for place in places if not place.is_harmed and (not ready or place.is_ready)]
        if not free:
            yield None
            return
        place = self.random.choice(free)
        place.is_harmed = True
        try:
            yield place
        finally:
            place.is_harmed = False
