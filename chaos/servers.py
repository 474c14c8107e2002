"""The servers of a run: one alone, a primary with sentinels, or a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import redis.asyncio

from docket.testing.servers import Cluster, Sentinels, ServerGroup, ServerProcess
from docket.testing.servers.migration import SlotMigration

from .nemesis import FAULTS, FaultKind
from .nemesis.groups import GROUP_FAULTS, FailOver, MigrateSlot
from .proxy import Proxy
from .settings import Settings

# The append-only file is written before each answer: nothing acknowledged is lost.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
TAG = f"{{{Settings.docket}}}"


class Servers:
    """One server, which each process reaches through a proxy of its own."""

    kind = "standalone"
    durability: str = "primary"

    def __init__(self) -> None:
        self._server = ServerProcess(*DURABLE)

    @property
    def faults(self) -> Sequence[FaultKind]:
        return FAULTS

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def node(self) -> ServerProcess:
        """The server that has the data of the docket now."""
        return self._server

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.close()

    async def link(self, stack: AsyncExitStack) -> Proxy | None:
        """The proxy of one process; None if it reaches the servers directly."""
        return await stack.enter_async_context(Proxy(self._server))

    def client(self) -> Any:
        """A new client of the node that has the data now. The caller closes it."""
        return redis.asyncio.Redis(unix_socket_path=str(self.node.socket))


class GroupOfServers(Servers):
    """Servers whose addresses their clients find out by themselves, so there are no proxies."""

    def __init__(self, group: ServerGroup) -> None:
        self._group = group

    @property
    def url(self) -> str:
        return self._group.url

    def start(self) -> None:
        self._group.start()

    def close(self) -> None:
        self._group.close()

    async def link(self, stack: AsyncExitStack) -> Proxy | None:
        return None


class SentinelServers(GroupOfServers):
    """A fail-over loses what the replicas do not have, so an `add` waits for a replica."""

    kind = "sentinel"
    durability = "replica"

    def __init__(self) -> None:
        # With one replica, the replica that has confirmed an `add` is the one that is chosen. A
        # busy machine must not look like a dead server.
        self.sentinels = Sentinels(*DURABLE, replicas=1, down_after_ms=3000, failover_timeout_ms=6000)
        super().__init__(self.sentinels)

    @property
    def faults(self) -> Sequence[FaultKind]:
        return (*GROUP_FAULTS, FailOver(self))

    @property
    def node(self) -> ServerProcess:
        return self.sentinels.current_primary()


class ClusterServers(GroupOfServers):
    """The hash slot of the docket moves from node to node."""

    kind = "cluster"

    def __init__(self) -> None:
        self.cluster = Cluster(*DURABLE)
        super().__init__(self.cluster)

    @property
    def faults(self) -> Sequence[FaultKind]:
        return (*GROUP_FAULTS, MigrateSlot(self))

    @property
    def node(self) -> ServerProcess:
        return self.cluster.owner(self.cluster.slot(TAG))

    def migration(self) -> SlotMigration:
        """A migration to the next of the nodes that have slots."""
        source = self.node
        primaries = [node for node in self.cluster.nodes if node.run("ROLE")[0] == b"master"]
        target = primaries[(primaries.index(source) + 1) % len(primaries)]
        return SlotMigration(self.cluster, self.cluster.slot(TAG), target)


SERVERS: dict[str, type[Servers]] = {servers.kind: servers for servers in (Servers, SentinelServers, ClusterServers)}
