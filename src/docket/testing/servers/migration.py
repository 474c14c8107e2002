"""Moves a hash slot of a cluster from one node to another."""

from __future__ import annotations

from .cluster import Cluster
from .groups import wait_until
from .process import HOST, ServerProcess

_KEYS_PER_STEP = 100
_STEP_MS = 10_000


class SlotMigration:
    """The migration of one slot, key by key: `begin`, `move_keys`, `end`, or all three with `run`.
    From `begin` to `end` both nodes refuse commands for keys that they do not have.

    `run_in_one_step` lets the server do it, which keeps serving the slot meanwhile. Valkey 9 has
    this.
    """

    def __init__(self, cluster: Cluster, slot: int, target: ServerProcess) -> None:
        self.cluster = cluster
        self.slot = slot
        self.source: ServerProcess = cluster.owner(slot)
        self.target = target

    def run(self) -> None:
        """Migrates the whole slot."""
        self.begin()
        self.move_keys()
        self.end()

    def begin(self) -> None:
        """Marks the slot as migrating; no key has moved yet."""
        self.target.run("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self.cluster.node_id(self.source))
        self.source.run("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self.cluster.node_id(self.target))

    def move_keys(self, *keys: str | bytes) -> None:
        """Moves these keys, or all keys of the slot."""
        if keys:
            self._move(keys)
        else:
            while found := self.source.run("CLUSTER", "GETKEYSINSLOT", self.slot, _KEYS_PER_STEP):
                self._move(found)

    def end(self) -> None:
        """Tells all primaries which node has the slot now."""
        owner = self.cluster.node_id(self.target)
        others = [
            node
            for node in self.cluster.nodes
            if node not in (self.source, self.target) and node.is_running and node.run("ROLE")[0] == b"master"
        ]
        for node in (self.target, self.source, *others):
            node.run("CLUSTER", "SETSLOT", self.slot, "NODE", owner)

    def run_in_one_step(self) -> None:
        """Raises redis.ResponseError if the server cannot do that."""
        target = self.cluster.node_id(self.target)
        self.source.run("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", self.slot, self.slot, "NODE", target)
        wait_until(lambda: not self._is_at_source(), f"slot {self.slot} has left its node")

    def _is_at_source(self) -> bool:
        return self.source.run("CLUSTER", "COUNTKEYSINSLOT", self.slot) > 0

    def _move(self, keys: tuple[str | bytes, ...] | list[bytes]) -> None:
        self.source.run("MIGRATE", HOST, self.target.port, "", 0, _STEP_MS, "KEYS", *keys)
