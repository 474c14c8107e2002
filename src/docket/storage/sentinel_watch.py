"""Hears from a sentinel that another server is the primary now (docs/design/replicas.md)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from docket._aio import Backoff, cancel_and_wait

from .connection import open_pipeline
from .faults import SERVER_ERRORS
from .node_connections import NodeConnections
from .nodes import NodeAddress, SentinelNodes
from .pipeline import keep_listening

# The sentinel that leads a fail-over knows first (promoted), then all of them (switch).
CHANNELS = (b"+promoted-slave", b"+switch-master")
# A sentinel that has sent nothing for this long has to answer a PING, within the same time.
SILENCE_SECONDS = 5.0
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
                await keep_listening(pipeline, SILENCE_SECONDS)
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
