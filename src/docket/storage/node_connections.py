"""The connections of one docket to the nodes of its server."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from .attempts import SharedAttempts
from .clients import Clients
from .connection import Connection
from .nodes import NodeAddress, Nodes
from .threads import in_thread

ConnectionsBySlot = dict[int, Connection]


class NodeConnections:
    """One connection for each hash slot in use, and two more for large values.

    `nodes` finds the node of a slot; it is None if there is only one server, which has slot 0. The
    stack closes the connections.
    """

    def __init__(self, clients: Clients, nodes: Nodes | None, stack: AsyncExitStack, answer_seconds: float) -> None:
        self._clients = clients
        self.nodes = nodes
        self._stack = stack
        self._answer_seconds = answer_seconds
        self.ordinary: ConnectionsBySlot = {}
        # For large values: to the server (STORING), and from it (FETCHING).
        self.bulk: tuple[ConnectionsBySlot, ConnectionsBySlot] = ({}, {})
        self.addresses: dict[int, NodeAddress] = {}
        # The thread that asks has the time for an answer; one more second lets it report its error.
        self._locating = SharedAttempts(self._find, answer_seconds + 1, "docket - locating")
        stack.callback(self._locating.stop)

    async def to_slot(self, slot: int, connections: ConnectionsBySlot) -> Connection:
        """The connection to the node that has the slot, which is made or moved if necessary."""
        connection = connections.get(slot)
        if connection is not None and (self.nodes is None or slot in self.addresses):
            return connection
        address = await self._address(slot)
        connection = connections.get(slot)
        if connection is None:
            connection = connections[slot] = self.to_node(address)
            self._stack.push_async_callback(connection.aclose)
        elif address is not None:
            await connection.move(*address)
        return connection

    def to_node(self, address: NodeAddress | None) -> Connection:
        """A new connection, which the caller closes."""
        return Connection(self._clients.node_client(address), self._answer_seconds)

    async def to_key(self, key: bytes) -> Connection:
        """A new connection to the node that has the key, which the caller closes."""
        return self.to_node(await self._address(self.nodes.slot(key) if self.nodes is not None else 0))

    async def any_client(self) -> Any:
        """A client of any node."""
        address = None
        if self.nodes is not None:
            address = self.nodes.any() or await in_thread(self.nodes.locate, self._answer_seconds)
        return self._clients.node_client(address)

    async def server_info(self) -> bytes:
        """The answer to INFO server, of any node that answers."""
        if self.nodes is None:
            return await (await self.to_slot(0, self.ordinary)).ask("INFO", "server")
        connection = self.to_node(await in_thread(self.nodes.locate, self._answer_seconds))
        try:
            return await connection.ask("INFO", "server")
        finally:
            await connection.aclose()

    def disconnect(self) -> None:
        """The next command on each connection opens it again, at the node that has the slot by
        then."""
        self.addresses.clear()
        for connections in (self.ordinary, *self.bulk):
            for connection in connections.values():
                connection.disconnect()

    async def _address(self, slot: int) -> NodeAddress | None:
        """The address of the slot's node. Asks the cluster or the sentinels if it is not known."""
        if self.nodes is None:
            return None
        address = self.addresses.get(slot)
        if address is None:
            address = self.addresses[slot] = await self._locating.join(slot)
        return address

    async def _find(self, slot: int) -> NodeAddress:
        assert self.nodes is not None
        return await in_thread(self.nodes.find, slot, self._answer_seconds)
