"""Faults of several servers: fail-overs and migrations."""

from __future__ import annotations

import asyncio
from typing import Protocol

from docket.testing.servers import ServerProcess
from docket.testing.servers.groups import is_in_sync
from docket.testing.servers.migration import SlotMigration
from docket.testing.servers.process import HOST

from .arena import Arena
from .base import FaultKind
from .server import FlushScripts, KillClients
from .workers import BlockLoop, KillProducer, KillWorker, LethalTaskOnce, PauseWorker, StopWorker


class Primary(Protocol):
    """Servers of which one has the data."""

    @property
    def node(self) -> ServerProcess: ...


class Movable(Protocol):
    """Servers whose data can move to another one."""

    def migration(self) -> SlotMigration: ...


class FailOver(FaultKind):
    """The primary dies, the sentinels choose another
    one, and the old one comes back as its replica."""

    name = "fail-over"
    times = 4

    def __init__(self, servers: Primary) -> None:
        self._servers = servers

    async def inflict(self, arena: Arena) -> None:
        async with arena.server_lock:
            old = await asyncio.to_thread(lambda: self._servers.node)
            async with arena.fault(self.name):
                await asyncio.to_thread(old.kill)
                while await asyncio.to_thread(lambda: self._servers.node) is old:
                    await asyncio.sleep(0.05)
            new = await asyncio.to_thread(lambda: self._servers.node)
            await asyncio.to_thread(old.start, "--replicaof", HOST, str(new.port))
            # It has to copy the data before it may be chosen.
            while not await asyncio.to_thread(is_in_sync, old):
                await asyncio.sleep(0.05)


class MigrateSlot(FaultKind):
    """All data of the docket move to another node, key by key or in one step."""

    name = "slot migration"
    times = 4

    def __init__(self, servers: Movable) -> None:
        self._servers = servers

    async def inflict(self, arena: Arena) -> None:
        async with arena.server_lock:
            migration = await asyncio.to_thread(self._servers.migration)
            async with arena.fault(self.name):
                await asyncio.to_thread(migration.run)


# Faults that need neither a proxy nor a single server.
GROUP_FAULTS: tuple[FaultKind, ...] = (
    KillWorker(),
    PauseWorker(),
    StopWorker(),
    KillProducer(),
    BlockLoop(),
    LethalTaskOnce(),
    KillClients(),
    FlushScripts(),
)
