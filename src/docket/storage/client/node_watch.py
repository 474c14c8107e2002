"""Notices that a docket has another node: the old one is silent, or a sentinel reports a fail-over
(docs/design/replicas.md)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from docket._aio import Backoff, cancel_and_wait

from .clients import Clients
from .connection import Connection, open_pipeline
from .faults import SERVER_ERRORS
from .node_connections import NodeConnections
from .nodes import NodeAddress, Nodes, SentinelNodes
from .pipeline import keep_listening

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


# The sentinel that leads a fail-over knows first (promoted), then all of them (switch).
CHANNELS = (b"+promoted-slave", b"+switch-master")
# A sentinel that has sent nothing for this long has to answer a PING, within the same time.
SENTINEL_SILENCE_SECONDS = 5.0
_ANSWER_SECONDS = 5.0
_LONGEST_PAUSE = 2.0
# After a report docket asks more than once: on a busy machine some sentinels answer too late to be
# counted, and the others may not have heard of the fail-over yet.
_PAUSES = (0.0, 0.5, 1.0, 2.0)


class SentinelWatch:
    """Listens to one sentinel, and asks all of them when that one reports
    a fail-over. An old primary may be back, answer as before, and
    believe that it is the primary: nothing else shows that it is not."""

    def __init__(
        self, nodes: SentinelNodes, connections: NodeConnections, client_of: Callable[[NodeAddress], Any]
    ) -> None:
        self._nodes = nodes
        self._connections = connections
        self._client_of = client_of
        self._reported = asyncio.Event()

    def start(self, stack: AsyncExitStack) -> None:
        """The stack ends the watch."""
        name = self._connections.name
        tasks = [
            asyncio.create_task(self._listen(), name=f"{name} - sentinel watch"),
            asyncio.create_task(self._follow(), name=f"{name} - following the primary"),
        ]
        stack.push_async_callback(cancel_and_wait, tasks, "docket closes")

    async def _listen(self) -> None:
        """Goes to the next sentinel when one fails."""
        backoff = Backoff(most=_LONGEST_PAUSE)
        number = 0
        while True:
            pipeline = None
            address = self._nodes.addresses[number % len(self._nodes.addresses)]
            try:
                pipeline = await open_pipeline(self._client_of(address), _ANSWER_SECONDS, self._on_message)
                pipeline.send("SUBSCRIBE", *CHANNELS)
                await keep_listening(pipeline, SENTINEL_SILENCE_SECONDS)
            except SERVER_ERRORS:
                # The other sentinels are as good, and services report an outage of the server.
                number += 1
            finally:
                if pipeline is not None:
                    pipeline.close()
            await asyncio.sleep(backoff.next_pause())

    def _on_message(self, message: list[Any]) -> None:
        if isinstance(message, Exception):
            raise message
        if message[0] == b"subscribe":
            # Reports before this moment are missed.
            self._reported.set()
        elif message[0] == b"message" and self._nodes.service.encode() in message[2].split():
            self._reported.set()

    async def _follow(self) -> None:
        while True:
            await self._reported.wait()
            self._reported.clear()
            for pause in _PAUSES:
                await asyncio.sleep(pause)
                with contextlib.suppress(*SERVER_ERRORS):
                    await self._connections.look_up(0)
