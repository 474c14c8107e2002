"""Whether the server whose replicas have confirmed a write still is the primary
(docs/design/replicas.md)."""

from __future__ import annotations

import asyncio
import math
import re
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, cast

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError

from docket._aio import in_thread
from docket.storage.scripts import Script

from .attempts import SharedAttempts
from .clients import Clients
from .connection import LEAVE_SECONDS, Connection, open_pipeline, opened, start_opening
from .faults import SERVER_ERRORS
from .nodes import Agreement, NodeAddress, Nodes, SentinelNodes
from .pipeline import Pipeline

# Sentinels need longer than this to replace a primary. So a primary that answers faster
# has not been replaced since its last answer.
SLOW_SECONDS = 0.3
# How long writes do not wait for a replica that was too slow for one of them.
LAG_SECONDS = 10.0
# A replica that nobody has seen does not come, become known to the sentinels and get promoted in
# this time.
IDLE_SECONDS = 10.0
# The same for one that they know and that is down.
RETURN_SECONDS = 1.0
# Between two questions to the sentinels. Writes that are confirmed in the meantime share the next.
PAUSE_SECONDS = 0.05
# A replica that has answered within the last second. Newer servers write more behind it.
_PRESENT = re.compile(rb"^slave\d+:(.*?),state=online,.*lag=[01]\b", re.MULTILINE)

# How many replicas have each address. Behind a translated network it may be more than one.
Replicas = Counter[bytes]


class PrimaryCheck:
    """Asks the sentinels whether the server that has confirmed a write is the primary, unless all
    replicas that they could promote have confirmed it quickly. The server may have been restarted,
    or paused, while they replaced it. Or they replace it while it works: the replica that they
    promote leaves it. Until they have told the server and its other replicas, it believes that it
    is the primary, and these replicas confirm writes that will be lost."""

    def __init__(self, nodes: SentinelNodes, patience: float) -> None:
        self._questions = _Questions(nodes, patience)
        # The connection whose server was the primary when it was asked for, and what the sentinels
        # said about its replicas.
        self._checked: Pipeline | None = None
        self._agreement = Agreement(0, others=True)
        # The replicas that there were after the last write, and how many the next one waits for.
        self._replicas = Replicas()
        self._least = 1
        # Until when the next confirmation may count without a question.
        self._until = 0.0
        # Until when writes do not wait for a replica that lags.
        self._lags_until = 0.0

    def replicas_to_wait_for(self, connection: Connection) -> int:
        """The sentinels are asked after the first write on a connection. So it need not wait for
        the replicas that another server had."""
        return self._least if connection.pipeline is self._checked else 1

    async def is_primary(self, connection: Connection, seconds: float, confirmed: int) -> bool:
        """`seconds` is how long the write has taken, `confirmed` how many replicas have it."""
        pipeline = connection.pipeline
        replicas = await _present(connection)
        if replicas is not None and pipeline is not None and pipeline is self._checked and seconds < SLOW_SECONDS:
            # A replica that has just come may be promoted a moment later, and one that has gone may
            # be the primary already, even if another one has come in its place.
            is_whole = self._replicas <= replicas and self._agreement.replicas <= confirmed == replicas.total()
            if is_whole and time.monotonic() < self._until:
                self._note(replicas, confirmed)
                return True
        self._checked = None
        agreement = await self._questions.agreement(connection)
        if agreement is not None and replicas is not None and connection.pipeline is pipeline:
            self._checked, self._agreement = pipeline, agreement
            now = time.monotonic()
            if confirmed < replicas.total() and seconds >= SLOW_SECONDS:
                self._lags_until = now + LAG_SECONDS
            # A replica that is gone, or lags, does not hold up further writes.
            self._note(replicas, confirmed if now < self._lags_until else replicas.total())
            self._until = now + (RETURN_SECONDS if agreement.others else IDLE_SECONDS)
        return agreement is not None

    def _note(self, replicas: Replicas, least: int) -> None:
        self._replicas, self._least = replicas, max(least, 1)
        if not self._agreement.others:
            self._until = time.monotonic() + IDLE_SECONDS


class _Questions:
    """Asks the sentinels. A question that began before a write was confirmed says nothing about
    that write; writes that wait for the next one share it."""

    def __init__(self, nodes: SentinelNodes, patience: float) -> None:
        self._nodes = nodes
        self._patience = patience
        self._turn = asyncio.Lock()
        self._begun = self._answered = 0
        self._began_at = -math.inf
        self._answer: Agreement | None = None

    async def agreement(self, connection: Connection) -> Agreement | None:
        before = self._begun
        async with self._turn:
            if self._answered > before:
                return self._answer
            await asyncio.sleep(self._began_at + PAUSE_SECONDS - time.monotonic())
            self._begun, self._began_at = self._begun + 1, time.monotonic()
            try:
                self._answer = await in_thread(self._nodes.agree_on, connection.address, self._patience)
            except SERVER_ERRORS:
                self._answer = None
            self._answered = self._begun
            return self._answer


async def _present(connection: Connection) -> Replicas | None:
    """None if the server does not say."""
    try:
        info: bytes = await connection.ask("INFO", "replication")
    except SERVER_ERRORS:
        return None
    return Counter(_PRESENT.findall(info))


# How often a call is made again because another node has its slot.
MOST_MOVES = 3
# Between two searches for a node. Calls that need it in the meantime share the next one.

ConnectionsBySlot = dict[int, Connection]


class NodeConnections:
    """One connection for each hash slot in use, and more for large values and for writes that wait
    for a replica, if there are any. All of them follow the slot when it moves to another node
    (docs/design/replicas.md).

    `nodes` finds the node of a slot; it is None if there is only one server, which has slot 0. The
    stack closes the connections.
    """

    def __init__(self, clients: Clients, nodes: Nodes | None, stack: AsyncExitStack, answer_seconds: float) -> None:
        self._clients = clients
        self.nodes = nodes
        self.name: str = clients.name
        self._stack = stack
        self._answer_seconds = answer_seconds
        self.ordinary: ConnectionsBySlot = {}
        # For large values: to the server (STORING), and from it (FETCHING).
        self.bulk: tuple[ConnectionsBySlot, ConnectionsBySlot] = ({}, {})
        # For scripts that are followed by a WAIT, which blocks its connection.
        self.durable: ConnectionsBySlot = {}
        self._primary_check: PrimaryCheck | None = None
        if isinstance(nodes, SentinelNodes):
            self._primary_check = PrimaryCheck(nodes, answer_seconds)
        # The nodes to use. A slot that is missing here is searched before its next command.
        self.addresses: dict[int, NodeAddress] = {}
        # The last node of each slot, which may be out of date.
        self._last: dict[int, NodeAddress] = {}
        # When each slot was last searched.
        self._searched_at: dict[int, float] = {}
        # How often a slot has moved.
        self.moves: int = 0
        self._by_slot: dict[int, weakref.WeakSet[Connection]] = {}
        self._listeners: dict[int, list[Callable[[], object]]] = {}
        # One second longer than the time-out of the
        # thread, so that the thread can report its error.
        self._locating = SharedAttempts(self._find, answer_seconds + 1, f"{clients.name} - locating")
        stack.callback(self._locating.stop)

    def slot(self, key: bytes) -> int:
        return self.nodes.slot(key) if self.nodes is not None else 0

    async def to_slot(self, slot: int, connections: ConnectionsBySlot) -> Connection:
        """The connection to the node that has the slot, which is made or moved if necessary."""
        connection = connections.get(slot)
        if connection is not None and (self.nodes is None or slot in self.addresses):
            return connection
        address = await self._address(slot)
        connection = connections.get(slot)
        if connection is None:
            # An old primary cannot confirm anything, so nobody waits for its WAIT.
            leaves_at_once = connections is self.durable and self._primary_check is not None
            connection = connections[slot] = self._to_node(slot, address, 0.0 if leaves_at_once else LEAVE_SECONDS)
            self._stack.push_async_callback(connection.aclose)
        elif address is not None:
            connection.move(*address)
        return connection

    async def call_after_move(
        self,
        slot: int,
        connections: ConnectionsBySlot,
        call: Callable[[Connection], Awaitable[Any]],
        error: MovedError,
    ) -> Any:
        """Makes a call that a node has refused because another one has the slot. The nodes may
        disagree for a moment about which node that is."""
        for _ in range(MOST_MOVES):
            self.moved(slot, error)
            try:
                return await call(await self.to_slot(slot, connections))
            except MovedError as another:
                error = another
        raise error

    async def run_and_wait(
        self, connection: Connection, script: Script, keys: Sequence[bytes], args: Sequence[bytes | str], wait_ms: int
    ) -> tuple[Any, int | Exception]:
        """See `Connection`. A confirmation counts only if the
        sentinels agree that its server is the primary."""
        check = self._primary_check
        await connection.connect()
        began, moves = time.monotonic(), connection.moves
        least = check.replicas_to_wait_for(connection) if check is not None else 1
        answer, replicas = await connection.run_and_wait(script, keys, args, wait_ms, least)
        if check is None or isinstance(replicas, Exception) or replicas == 0:
            return answer, replicas
        is_primary = await check.is_primary(connection, time.monotonic() - began, replicas)
        if is_primary and connection.moves == moves:
            return answer, replicas
        # The next call searches for the primary.
        self.addresses.pop(self.slot(keys[0]), None)
        return answer, RedisConnectionError("the sentinels do not confirm that this server is the primary")

    async def blocking(self, slot: int) -> Connection:
        """A new connection to the node that has the slot, for commands that block. It leaves a node
        at once when the slot moves. The caller closes it."""
        return self._to_node(slot, await self._address(slot), 0.0)

    async def subscription(self, slot: int | None, on_message: Callable[[list[Any]], None]) -> Pipeline:
        """A connection for subscriptions, to any node, or to the node that has the slot. In the
        second case it is closed when the slot moves."""
        if slot is None or self.nodes is None:
            client = self._clients.node_client(await self._any_address())
            return await open_pipeline(client, self._answer_seconds, on_message)
        client = self._clients.node_client(await self.look_up(slot))
        opening = start_opening(client, self._answer_seconds, self.name, on_message)
        forget = self._on_move(slot, opening.cancel)
        try:
            pipeline = await opened(opening)
        finally:
            forget()
        if pipeline is None:
            raise RedisConnectionError("another node has the docket now")
        forget = self._on_move(slot, pipeline.close)
        pipeline.ended.add_done_callback(lambda _: forget())
        return pipeline

    async def _any_address(self) -> NodeAddress | None:
        if self.nodes is None:
            return None
        return self.nodes.any() or await in_thread(self.nodes.locate, self._answer_seconds)

    async def server_info(self) -> bytes:
        """The answer to INFO server, of any node that answers."""
        if self.nodes is None:
            return await (await self.to_slot(0, self.ordinary)).ask("INFO", "server")
        address = await in_thread(self.nodes.locate, self._answer_seconds)
        connection = Connection(self._clients.node_client(address), self._answer_seconds, name=self.name)
        try:
            return await connection.ask("INFO", "server")
        finally:
            await connection.aclose()

    def disconnect(self) -> None:
        """The next command on each connection opens it again, at the node that has the slot by
        then."""
        self.addresses.clear()
        for connections in (self.ordinary, self.durable, *self.bulk):
            for connection in connections.values():
                connection.disconnect()

    # The nodes of the slots

    async def look_up(self, slot: int) -> NodeAddress | None:
        """Asks the cluster or the sentinels for the node of a slot, and follows the slot to it.
        None if there is only one server."""
        if self.nodes is None:
            return None
        address = await self._locating.join(slot)
        self._follow(slot, address)
        return address

    def moved(self, slot: int, error: MovedError) -> None:
        """Follows the slot to the node that the old one names. A node that does not know the
        other's host means its own."""
        host, port = cast(NodeAddress, error.node_addr)
        last = self._last.get(slot)
        if last is not None:
            self._follow(slot, (host or last[0], port))

    def _on_move(self, slot: int, listener: Callable[[], object]) -> Callable[[], None]:
        """Calls the listener whenever the slot moves to
        another node. Returns the function that ends this."""
        listeners = self._listeners.setdefault(slot, [])
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def _follow(self, slot: int, address: NodeAddress) -> None:
        last, self._last[slot] = self._last.get(slot), address
        self.addresses[slot] = address
        if last is None or last == address:
            return
        self.moves += 1
        for connection in list(self._by_slot.get(slot, ())):
            connection.move(*address)
        for listener in list(self._listeners.get(slot, ())):
            listener()

    async def _address(self, slot: int) -> NodeAddress | None:
        """The address of the slot's node. Asks the cluster or the sentinels if it is not known."""
        return self.addresses.get(slot) or await self.look_up(slot)

    async def _find(self, slot: int) -> NodeAddress:
        assert self.nodes is not None
        await asyncio.sleep(self._searched_at.get(slot, -math.inf) + PAUSE_SECONDS - time.monotonic())
        self._searched_at[slot] = time.monotonic()
        return await in_thread(self.nodes.find, slot, self._answer_seconds)

    def _to_node(self, slot: int, address: NodeAddress | None, leave_seconds: float) -> Connection:
        connection = Connection(self._clients.node_client(address), self._answer_seconds, leave_seconds, self.name)
        self._by_slot.setdefault(slot, weakref.WeakSet()).add(connection)
        return connection
