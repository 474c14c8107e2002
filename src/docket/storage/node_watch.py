"""Notices that a docket has another node while the old one is silent (docs/design/replicas.md)."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from functools import partial

from docket._aio import cancel_and_wait

from .clients import Clients
from .connection import Connection
from .faults import SERVER_ERRORS
from .node_connections import NodeConnections
from .nodes import Nodes, SentinelNodes
from .sentinel_watch import SentinelWatch

# A node that has sent nothing for this long has to answer a PING, within the same time.
SILENCE_SECONDS = 1.0
# The time between two questions where the node is.
ASK_SECONDS = 0.5


def start_watches(nodes: Nodes | None, connections: NodeConnections, clients: Clients, stack: AsyncExitStack) -> None:
    """A single server needs none. The stack ends the watches."""
    if nodes is not None:
        NodeWatch(connections).start(stack)
    if isinstance(nodes, SentinelNodes):
        client_of = partial(clients.sentinel_client, options=nodes.options)
        SentinelWatch(nodes, connections, client_of).start(stack)


class NodeWatch:
    """For clusters and sentinels. A node that is paused or cut off closes no connection. Its
    replica takes over long before a command on the old connection would time out."""

    def __init__(self, connections: NodeConnections) -> None:
        self._connections = connections

    def start(self, stack: AsyncExitStack) -> None:
        """The stack ends the watch."""
        watching = asyncio.create_task(self._run(), name=f"{self._connections.name} - node watch")
        stack.push_async_callback(cancel_and_wait, [watching], "docket closes")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(ASK_SECONDS)
            for slot, connection in list(self._connections.ordinary.items()):
                await self._watch(slot, connection)

    async def _watch(self, slot: int, connection: Connection) -> None:
        """Asks for the node of the slot until it answers or the slot has moved."""
        if not await connection.is_silent(SILENCE_SECONDS):
            return
        moves = connection.moves
        silent_since = connection.heard_at
        while connection.moves == moves and connection.heard_at == silent_since:
            with contextlib.suppress(*SERVER_ERRORS):
                await self._connections.look_up(slot)
            await asyncio.sleep(ASK_SECONDS)
