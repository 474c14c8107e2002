"""One server as docket uses it: a handful of connections,
scripts by digest, errors that explain themselves."""

from __future__ import annotations

import asyncio
import random
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import redis.asyncio as aioredis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import MovedError, NoScriptError, ResponseError
from redis.retry import Retry

from docket.errors import NotOpen, ServerUnreachable, ServerUnsuitable
from docket.model.clock import TaskClock, shared_clock

from .attempts import SharedAttempt, SharedAttempts, Turns
from .blocking_connection import BlockingConnection
from .connection import Connection, open_pipeline
from .connections import ThreadedClient, async_class
from .credentials import bounded
from .engines import folder_engine, memory_engine
from .faults import SERVER_ERRORS, ServerSilent, is_about_certificates, is_from_the_wrong_node, translate
from .keys import text_bytes
from .nodes import NodeAddress, Nodes, nodes_of
from .outages import Outages
from .pipeline import Pipeline
from .scripts import load
from .server_version import server_version
from .threads import in_thread
from .urls import Address, Kind, hide_password, parse
from .user_client import user_client

if TYPE_CHECKING:
    from .embedded import FolderEngine

# Ordinary traffic is batched, so a handful of connections serve any concurrency.
CONNECTIONS = 8
# How long an answer may take before the connection counts as dead.
ANSWER_SECONDS = 5.0
# How long the server may hold a blocking read.
BLOCK_SECONDS = 5.0
# The share of the time for connecting that a credential
# provider may take: its failure shall be told as its own.
_CREDENTIALS_SHARE = 0.8
# Between two attempts to reach a server that has to be there.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
# The ways of large values: to the server, and from it.
STORING, FETCHING = range(2)
# Options of the URL that would let a command of a thread
# take longer than its patience, or that are about pools.
_NOT_IN_THREADS = ("max_connections", "health_check_interval", "retry_on_timeout", "retry_on_error")


class Server:
    """The connections of one docket to its server. An async context manager.

    A server that is away can be entered: calls fail until it is there. With `entry_seconds` it has
    to be there within that time. A server that answers and cannot be used is an error at once.
    """

    def __init__(
        self, url: str, credential_provider: CredentialProvider | None = None, *, entry_seconds: float | None = None
    ) -> None:
        self.url = url
        self.address: Address = parse(url)
        self.shown_url: str = hide_password(url)
        self.database: int = self.address.database
        self.clock: TaskClock = shared_clock(self.address.name) if self.address.kind is Kind.MEMORY else TaskClock()
        self.entry_seconds = entry_seconds
        self.outages: Outages = Outages()
        self.engine_name: str = "a server"
        self.engine_version: str = "that has not answered yet"
        self.credential_provider: CredentialProvider | None = credential_provider
        self._credentials = credential_provider
        self._stack = AsyncExitStack()
        self._engine: FolderEngine | None = None
        self._nodes: Nodes | None = None
        self._connections: dict[int, Connection] = {}
        # By way, for large values: one request at a time.
        self._bulk_connections: tuple[dict[int, Connection], dict[int, Connection]] = ({}, {})
        self._bulk_turns = (Turns(), Turns())
        self._addresses: dict[int, NodeAddress] = {}
        # The threads have the same time; a little more is for them to say why they failed.
        self._locating = SharedAttempts(self._find, ANSWER_SECONDS + 1, "docket - locating")
        self._greeting = SharedAttempt(self._examine, ANSWER_SECONDS, "docket - greeting")
        self._pools: weakref.WeakSet[Any] = weakref.WeakSet()
        # Entered, greeted and not closed.
        self._is_usable = False
        self._closed = False
        self.client: Any = None

    @property
    def is_cluster(self) -> bool:
        return self.address.kind is Kind.CLUSTER

    async def __aenter__(self) -> Server:
        self._stack, self._closed, self._is_usable = AsyncExitStack(), False, False
        self.outages.open()
        try:
            if self.credential_provider is not None:
                self._credentials = bounded(self.credential_provider, ANSWER_SECONDS * _CREDENTIALS_SHARE)
            await self._locate()
            self._nodes = nodes_of(self.address, self._options(ANSWER_SECONDS))
            self._connections, self._addresses = {}, {}
            self._bulk_connections, self._bulk_turns = ({}, {}), (Turns(), Turns())
            self._stack.callback(self._greeting.stop)
            self._stack.callback(self._locating.stop)
            await self._reach()
            self.client = user_client(self.address, self._options(ANSWER_SECONDS), self._stack) or self._plain_client(
                CONNECTIONS, ANSWER_SECONDS, None
            )
            self._stack.push_async_callback(self.client.aclose)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._closed, self._is_usable = True, False
        await self._stack.aclose()

    def run(
        self, script: str, keys: Sequence[bytes], *args: bytes | str, patience: float | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Runs a script by its digest; loads it first where the server does not know it."""
        if self.clock.script_keys:
            keys = [*keys, *self.clock.script_keys]
        loaded = load(script)
        return self._on_node(keys[0], lambda connection: connection.run(loaded, keys, args, patience))

    async def ask(self, key: bytes, *words: bytes | str | int) -> Any:
        """One command on the node that has the key, answered as the server answers it."""
        return await self._on_node(key, lambda connection: connection.ask(*words))

    async def connect(self, key: bytes, way: int | None = None) -> None:
        """Returns when there is a connection to the node that
        has the key, for large values if a `way` is given."""
        connections = None if way is None else self._bulk_connections[way]
        await self._on_node(key, lambda connection: connection.connect(), connections)

    async def ask_alone(self, way: int, key: bytes, *words: bytes | str | int, patience: float = 1.0) -> Any:
        """One command with a large value (STORING), or for
        one (FETCHING): nothing small waits behind it."""
        connections = self._bulk_connections[way]
        return await self._bulk_turns[way].call(
            lambda: self._on_node(key, lambda connection: connection.ask_alone(*words, patience=patience), connections)
        )

    async def run_alone(
        self, way: int, script: str, keys: Sequence[bytes], *args: bytes | str | int, patience: float = 1.0
    ) -> Any:
        """The same for a script that takes a large value.
        It is rare, so its source is sent along."""
        words = ("EVAL", load(script).source, len(keys), *keys, *args)
        return await self.ask_alone(way, keys[0], *words, patience=patience)

    async def _on_node(
        self, key: bytes, call: Callable[[Connection], Awaitable[Any]], connections: dict[int, Connection] | None = None
    ) -> Any:
        if not self._is_usable:
            await self._greet()
        nodes = self._nodes
        slot = nodes.slot(key) if nodes is not None else 0
        connections = self._connections if connections is None else connections
        # Nearly always the connection is there: asking for it in a coroutine would cost more than
        # the rest of this function.
        connection = connections.get(slot) if nodes is None or slot in self._addresses else None
        try:
            try:
                return await call(await self._connection_to(slot, connections) if connection is None else connection)
            except MovedError:
                # The slot has a new home, and nothing was done at the old one.
                self._addresses.pop(slot, None)
                return await call(await self._connection_to(slot, connections))
        except SERVER_ERRORS as error:
            if self._nodes is not None and is_from_the_wrong_node(error):
                self._addresses.pop(slot, None)
            raise self.explain(error) from error

    async def _connection_to(self, slot: int, connections: dict[int, Connection]) -> Connection:
        connection = connections.get(slot)
        if connection is not None and (self._nodes is None or slot in self._addresses):
            return connection
        address = await self._address(slot)
        connection = connections.get(slot)
        if connection is None:
            connection = connections[slot] = Connection(self._plain_client(1, None, address), ANSWER_SECONDS)
            self._stack.push_async_callback(connection.aclose)
        elif address is not None:
            await connection.move(*address)
        return connection

    async def _address(self, slot: int) -> NodeAddress | None:
        """Where the slot is, as far as we know; asks the cluster or the sentinels if we do not."""
        if self._nodes is None:
            return None
        address = self._addresses.get(slot)
        if address is None:
            address = self._addresses[slot] = await self._locating.join(slot)
        return address

    async def _find(self, slot: int) -> NodeAddress:
        assert self._nodes is not None
        return await in_thread(self._nodes.find, slot, ANSWER_SECONDS)

    def run_blocking(self, client: Any, script: str, keys: Sequence[bytes], *args: bytes | str) -> Any:
        """The same on a client of threaded_client(), for code outside the event loop."""
        if self._closed:
            raise self._not_open()
        loaded = load(script)
        try:
            try:
                return client.execute_command("EVALSHA", loaded.sha, len(keys), *keys, *args)
            except NoScriptError:
                return client.execute_command("EVAL", loaded.source, len(keys), *keys, *args)
        except SERVER_ERRORS as error:
            raise self.explain(error) from error

    def unblock(self, client: Any, id: int) -> None:
        """Ends the wait of another connection, as if its
        time were over, where the server permits that."""
        try:
            client.execute_command("CLIENT", "UNBLOCK", id)
        except ResponseError:
            # Forbidden here: the wait ends by itself.
            return
        except SERVER_ERRORS as error:
            raise self.explain(error) from error

    def explain(self, error: BaseException) -> BaseException:
        """What a failed call means. Once the docket is
        closed that is final; everything else may pass."""
        if self._closed:
            return self._not_open()
        return translate(error, self.shown_url) or error

    def _not_open(self) -> NotOpen:
        return NotOpen(f"{self.shown_url}: the docket was closed")

    async def revive(self) -> None:
        """After a lost connection: others that lie idle are not trusted either, and an embedded
        engine that died is started again with its data."""
        self._addresses.clear()
        for connections in (self._connections, *self._bulk_connections):
            for connection in connections.values():
                connection.disconnect()
        if self._engine is None:
            return
        found = await in_thread(self._engine.ensure)
        self.address = Address(self.address.kind, {"path": found.socket_path}, found.database)
        for pool in self._pools:
            pool.connection_kwargs["path"] = found.socket_path

    def _plain_client(self, connections: int, answer_seconds: float | None, address: NodeAddress | None) -> Any:
        """An asyncio client of one node, with a pool of its own;
        it waits for a free connection instead of failing."""
        options = self._options(answer_seconds)
        options["retry"] = AsyncRetry(NoBackoff(), 0)
        if address is not None:
            options.update(host=address[0], port=address[1])
        most = int(options.pop("max_connections", 0) or connections)
        pool = BlockingConnectionPool(
            max_connections=max(most, connections),
            timeout=None,
            connection_class=async_class(self.address),
            **options,
        )
        self._pools.add(pool)
        return aioredis.Redis.from_pool(pool)

    async def blocking_connection(self, key: str) -> BlockingConnection:
        """A connection for blocking reads of one key, to the node that has it."""
        if not self._is_usable:
            await self._greet()
        name = text_bytes(key)
        slot = self._nodes.slot(name) if self._nodes is not None else 0
        connection = Connection(self._plain_client(1, None, await self._address(slot)), ANSWER_SECONDS)
        return BlockingConnection(connection, lambda *words: self.ask(name, *words))

    async def subscription_pipeline(self, on_message: Callable[[list[Any]], None]) -> Pipeline:
        """A connection for subscriptions; any node of a cluster hears all channels."""
        if not self._is_usable:
            await self._greet()
        address = None
        if self._nodes is not None:
            address = self._nodes.any() or await in_thread(self._nodes.locate, ANSWER_SECONDS)
        return await open_pipeline(self._plain_client(1, None, address), ANSWER_SECONDS, on_message)

    def threaded_client(self, patience: Callable[[], float], key: str = "") -> ThreadedClient:
        """A blocking client for use in a thread, of the node that has the key. Each command,
        connecting and looking for the node included, ends within the patience of that moment,
        whatever the URL says about time-outs."""
        if self._closed:
            raise self._not_open()

        def options(seconds: float) -> dict[str, Any]:
            found = {**self._options(None), "retry": Retry(NoBackoff(), 0)}
            for name in _NOT_IN_THREADS:
                found.pop(name, None)
            if self._nodes is not None:
                # The rest is for the node itself.
                address = self._nodes.find(self._nodes.slot(text_bytes(key)), seconds / 2)
                found.update(host=address[0], port=address[1])
            return found

        return ThreadedClient(self.address, options, patience, lambda: self.outages.count)

    def _options(self, answer_seconds: float | None) -> dict[str, Any]:
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_connect_timeout": ANSWER_SECONDS,
            **self.address.options,
        }
        if answer_seconds is None:
            options["socket_timeout"] = None
        else:
            options["socket_timeout"] = max(float(options.get("socket_timeout") or 0), answer_seconds)
        options["db"] = self.database
        if self._credentials is not None:
            options["credential_provider"] = self._credentials
        return options

    async def _locate(self) -> None:
        # From the URL each time: an engine that is entered again may have another address.
        self.address = parse(self.url)
        if self.address.kind is Kind.MEMORY:
            engine = await in_thread(memory_engine, self.address.name)
        elif self.address.kind is Kind.FOLDER:
            assert self.address.folder is not None
            self._engine = folder_engine(self.address.folder)
            engine = await in_thread(self._engine.start)
            self._stack.push_async_callback(in_thread, self._engine.stop)
        else:
            return
        self.database = engine.database
        self.address = Address(self.address.kind, {"path": engine.socket_path}, engine.database)

    async def _introduce(self) -> bytes:
        """What a server that answers says of itself."""
        if self._nodes is None:
            return await (await self._connection_to(0, self._connections)).ask("INFO", "server")
        address = await in_thread(self._nodes.locate, ANSWER_SECONDS)
        connection = Connection(self._plain_client(1, None, address), ANSWER_SECONDS)
        try:
            return await connection.ask("INFO", "server")
        finally:
            await connection.aclose()

    @property
    def is_reached(self) -> bool:
        """Whether the server has answered since this was entered."""
        return self._is_usable

    async def _reach(self) -> None:
        """Greets the server, again and again within `entry_seconds` if there are any. Without them,
        a server that is away is greeted by the first call that reaches it."""
        deadline = time.monotonic() + (self.entry_seconds or 0)
        pause = FIRST_PAUSE
        while True:
            try:
                await self._greet_within(deadline - time.monotonic())
                return
            except ServerUnreachable as error:
                left = deadline - time.monotonic()
                if is_about_certificates(error) or (self.entry_seconds is not None and left <= 0):
                    raise
                self.outages.failed(self, "connecting", error)
            if self.entry_seconds is None:
                return
            await asyncio.sleep(min(random.uniform(pause / 2, pause), left))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _greet_within(self, seconds: float) -> None:
        """The usual time for an answer if there is none to spare."""
        try:
            async with asyncio.timeout(seconds if seconds > 0 else None):
                await self._greet()
        except TimeoutError:
            raise ServerSilent(f"{self.shown_url}: no answer within {seconds:.0f} s") from None

    async def _greet(self) -> None:
        """Greets the server before anything else is asked.
        All who wait share one attempt, and its failure."""
        if self._closed:
            raise self._not_open()
        try:
            await self._greeting.join()
        except TypeError as error:
            raise ServerUnsuitable(f"{self.shown_url}: bad option in the URL: {error}") from error
        except SERVER_ERRORS as error:
            raise self.explain(error) from error

    async def _examine(self) -> None:
        """Finds out whether this is a server that docket can use."""
        said = await self._introduce()
        self.engine_name, self.engine_version = server_version(said, self.shown_url)
        self._is_usable = not self._closed
        self.outages.passed(self)
