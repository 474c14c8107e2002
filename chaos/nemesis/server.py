"""Faults of the server."""

from __future__ import annotations

import asyncio

from .arena import Arena
from .base import FaultKind


class KillServer(FaultKind):
    """It comes back with its append-only file."""

    name = "server killed"

    async def inflict(self, arena: Arena) -> None:
        async with arena.server_lock, arena.fault(self.name):
            arena.server.kill()
            await asyncio.sleep(arena.seconds(0.1, 3.0))
            await asyncio.to_thread(arena.server.start)


class PauseServer(FaultKind):
    """Shorter and longer than the leases."""

    name = "server paused"

    async def inflict(self, arena: Arena) -> None:
        async with arena.server_lock, arena.fault(self.name):
            arena.server.pause()
            await asyncio.sleep(arena.random.choice([0.5, 2.5, 5.0]))
            arena.server.wake()


class KillClients(FaultKind):
    name = "connections killed"

    async def inflict(self, arena: Arena) -> None:
        async with arena.server_lock, arena.fault(self.name):
            for kind in ("normal", "pubsub"):
                await asyncio.to_thread(arena.server.run, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


class FlushScripts(FaultKind):
    name = "scripts flushed"

    async def inflict(self, arena: Arena) -> None:
        async with arena.server_lock, arena.fault(self.name):
            await asyncio.to_thread(arena.server.run, "SCRIPT", "FLUSH")


class SqueezeMemory(FaultKind):
    """No room for anything new."""

    name = "out of memory"

    async def inflict(self, arena: Arena) -> None:
        async with arena.server_lock, arena.fault(self.name):
            await asyncio.to_thread(arena.server.run, "CONFIG", "SET", "maxmemory", "1mb")
            await asyncio.sleep(arena.seconds(0.5, 3.0))
            await asyncio.to_thread(arena.server.run, "CONFIG", "SET", "maxmemory", "0")


class ReadOnly(FaultKind):
    """As after a fail-over: the server is a replica of a primary that cannot be reached."""

    name = "server read-only"

    async def inflict(self, arena: Arena) -> None:
        async with arena.server_lock, arena.fault(self.name):
            await asyncio.to_thread(arena.server.run, "REPLICAOF", "127.0.0.1", "1")
            await asyncio.sleep(arena.seconds(0.5, 4.0))
            await asyncio.to_thread(arena.server.run, "REPLICAOF", "NO", "ONE")
