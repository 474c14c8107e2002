"""A cluster: primaries that share the hash slots, each with its replicas."""

from __future__ import annotations

import itertools
from typing import Any

from .groups import ServerGroup, is_in_sync, start_all, wait_until
from .process import HOST, ServerProcess

SLOTS = 16384


class Cluster(ServerGroup):
    """Three primaries with one replica each, by default.

    `nodes` are all servers: first those that begin as primaries, then their replicas in the same
    order. `owner(slot)` asks the nodes, so it is right after a fail-over too.
    """

    kind = "cluster"

    def __init__(
        self,
        *options: str,
        primaries: int = 3,
        replicas: int = 1,
        node_timeout_ms: int = 1500,
        **variant: Any,
    ) -> None:
        super().__init__(*options, **variant)
        self._primaries = primaries
        self._replicas = replicas
        self._node_timeout_ms = node_timeout_ms

    @property
    def nodes(self) -> list[ServerProcess]:
        """All primaries and replicas."""
        return self.servers

    @property
    def url(self) -> str:
        """The URL with the address of the first node."""
        return self.nodes[0].url.replace("://", "+cluster://", 1)

    def database_url(self, database: int) -> str:
        return self.url

    def slot(self, key: str) -> int:
        """The hash slot of a key."""
        return int(self._any().run("CLUSTER", "KEYSLOT", key))

    def owner(self, slot: int) -> ServerProcess:
        """The primary that serves a slot, as the nodes say."""
        for first, last, primary, *_ in self._any().run("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == primary[1])
        raise LookupError(f"no node of the cluster serves slot {slot}")

    def node_id(self, node: ServerProcess) -> str:
        """The id of a node in the cluster."""
        return _text(node.run("CLUSTER", "MYID"))

    def _any(self) -> ServerProcess:
        return next(node for node in self.nodes if node.is_running)

    def _start(self) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(self._node_timeout_ms))
        if self.variant.certificates is not None:
            options += ("--tls-cluster", "yes")
        count = self._primaries * (1 + self._replicas)
        # A cluster has one database.
        servers = [self.variant.server(*options) for _ in range(count)]
        self.servers.extend(servers)
        start_all(servers)
        primaries, replicas = servers[: self._primaries], servers[self._primaries :]
        for i, node in enumerate(primaries):
            first, end = i * SLOTS // self._primaries, (i + 1) * SLOTS // self._primaries
            # Redis 6.2 has no ADDSLOTSRANGE.
            node.run("CLUSTER", "ADDSLOTS", *range(first, end))
            node.run("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for one, other in itertools.combinations(servers, 2):
            one.run("CLUSTER", "MEET", HOST, other.port)
        wait_until(lambda: all(self._knows_everybody(node) for node in servers), "the nodes know each other")
        for i, replica in enumerate(replicas):
            replica.run("CLUSTER", "REPLICATE", self.node_id(primaries[i % self._primaries]))
        wait_until(self.is_whole, "the cluster is up")

    def _knows_everybody(self, node: ServerProcess) -> bool:
        lines = _text(node.run("CLUSTER", "NODES")).splitlines()
        return len(lines) == len(self.nodes) and not any("handshake" in line for line in lines)

    def serves(self, node: ServerProcess) -> bool:
        """Whether a node answers: it refuses while it cannot see who serves the other slots."""
        return "cluster_state:ok" in _text(node.run("CLUSTER", "INFO")).splitlines()

    def is_whole(self) -> bool:
        """Whether all slots are served, all nodes agree on that, and all replicas have the data."""
        running = [node for node in self.nodes if node.is_running]
        return (
            all(self.serves(node) for node in running)
            and len({_roles(node) for node in running}) == 1
            and all(is_in_sync(node) for node in running if node.run("ROLE")[0] == b"slave")
        )


def _roles(node: ServerProcess) -> frozenset[tuple[str, ...]]:
    """All nodes as one node knows them: id, role, primary, slots."""
    lines = _text(node.run("CLUSTER", "NODES")).splitlines()
    found = [line.split() for line in lines if line]
    return frozenset((w[0], w[2].removeprefix("myself,"), w[3], *w[8:]) for w in found)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
