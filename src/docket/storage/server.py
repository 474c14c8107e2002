"""One server as docket uses it: opening and greeting it, commands and scripts, typed errors, and
warnings of settings that may lose tasks."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError, MovedError, ResponseError

from docket._aio import Backoff, in_thread
from docket.errors import DocketError, NotOpen, ServerUnreachable, ServerUnsuitable
from docket.model.times import TaskClock, shared_clock

from .client.attempts import SharedAttempt, Turns
from .client.clients import Clients
from .client.connection import BlockingConnection, Connection
from .client.credentials import bounded
from .client.faults import (
    SERVER_ERRORS,
    ServerSilent,
    ServerUnavailable,
    is_about_certificates,
    is_from_the_wrong_node,
    translate,
)
from .client.node_connections import ConnectionsBySlot, NodeConnections
from .client.node_watch import start_watches
from .client.nodes import nodes_of
from .client.outages import Outages
from .client.pipeline import Pipeline
from .client.redis_py import ThreadedClient, run_script
from .client.urls import Address, ServerKind, hide_password, parse
from .keys import Keys, text_bytes
from .permissions import refusal
from .scripts import load

if TYPE_CHECKING:
    from .embedded import EngineAddress, FolderEngine


logger: logging.Logger = logging.getLogger("docket.storage")

OLDEST_SERVER = (6, 2)
# How long an answer may take before the connection counts as dead.
ANSWER_SECONDS = 5.0
# The share of the connecting time that a credential provider may take. Less than the whole, so that
# the error of a slow provider names the provider.
_CREDENTIALS_SHARE = 0.8
# How long the server may hold a blocking read.
BLOCK_SECONDS = 5.0
# Pauses between attempts to reach a server within `entry_seconds`.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
# The directions of large values: to the server, and from it.
STORING, FETCHING = range(2)
# Consumers in one request.
CONSUMERS_PAGE = 500
_VOLATILE_RISK = (
    "the windows of cooldowns, debounces and rate limits (so that tasks run too soon or too often) and the records and "
    "results of finished tasks"
)


class Server:
    """The connections of one docket to its server. An async context manager.

    It can be entered while the server is unreachable: calls fail until the server answers. With
    `entry_seconds` the server must answer within that time. A server that answers but is unsuitable
    raises an error at once.
    """

    def __init__(
        self,
        url: str,
        credential_provider: CredentialProvider | None = None,
        *,
        entry_seconds: float | None = None,
        name: str = "docket",
    ) -> None:
        address = parse(url)
        self.shown_url: str = hide_password(url)
        self.credential_provider: CredentialProvider | None = credential_provider
        # Entered, greeted and not closed.
        self._is_usable = False
        self._closed = False
        # For the explanation of a refusal: the user, and the keys of the docket.
        self._user = (
            "of the credential provider"
            if credential_provider is not None
            else repr(address.options.get("username") or "default")
        )
        self.keys: Keys | None = None
        self.url = url
        # The docket's. The names of asyncio tasks begin with it.
        self.name: str = name
        self.clock: TaskClock = shared_clock(address.name) if address.kind is ServerKind.MEMORY else TaskClock()
        self.entry_seconds = entry_seconds
        self.outages: Outages = Outages()
        self.engine_name: str = "a server"
        self.engine_version: str = "that has not answered yet"
        self._stack = AsyncExitStack()
        self._engine: FolderEngine | None = None
        self._clients = Clients(address, credential_provider, ANSWER_SECONDS, name)
        self._connections = NodeConnections(self._clients, None, self._stack, ANSWER_SECONDS)
        # By direction, for large values: one request at a time.
        self._bulk_turns = (Turns(), Turns())
        self._greeting = SharedAttempt(self._examine, ANSWER_SECONDS, f"{name} - greeting")
        self.client: Any = None

    @property
    def address(self) -> Address:
        return self._clients.address

    @property
    def database(self) -> int:
        return self._clients.database

    @property
    def is_cluster(self) -> bool:
        return self.address.kind is ServerKind.CLUSTER

    async def __aenter__(self) -> Server:
        self._stack, self._closed, self._is_usable = AsyncExitStack(), False, False
        self.outages.open()
        try:
            await self._open_clients()
            nodes = nodes_of(self.address, self._clients.options())
            self._connections = NodeConnections(self._clients, nodes, self._stack, ANSWER_SECONDS)
            self._bulk_turns = (Turns(), Turns())
            self._stack.callback(self._greeting.stop)
            start_watches(nodes, self._connections, self._clients, self._stack)
            await self._reach()
            self.client = self._clients.user_client(self._stack)
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
        """Runs a script by its digest; loads it first if the server does not know it."""
        if self.clock.script_keys:
            keys = [*keys, *self.clock.script_keys]
        loaded = load(script)
        return self._on_node(keys[0], lambda connection: connection.run(loaded, keys, args, patience))

    async def run_and_wait(
        self, script: str, keys: Sequence[bytes], *args: bytes | str, wait_ms: int
    ) -> tuple[Any, int | BaseException]:
        """Runs a script, and waits until a replica has its writes: see `Connection`."""
        keys = [*keys, *self.clock.script_keys] if self.clock.script_keys else keys
        loaded, known = load(script), self._connections
        answer, replicas = await self._on_node(
            keys[0], lambda connection: known.run_and_wait(connection, loaded, keys, args, wait_ms), known.durable
        )
        return answer, self.explain(replicas) if isinstance(replicas, Exception) else replicas

    async def ask(self, key: bytes, *words: bytes | str | int) -> Any:
        """Sends one command to the node that has the key. Returns the server's answer."""
        return await self._on_node(key, lambda connection: connection.ask(*words))

    async def connect(self, key: bytes, direction: int | None = None) -> None:
        """Returns when there is a connection to the node that has the key; with a `direction`, the
        connection for large values."""
        connections = None if direction is None else self._connections.bulk[direction]
        await self._on_node(key, lambda connection: connection.connect(), connections)

    async def ask_alone(self, direction: int, key: bytes, *words: bytes | str | int, patience: float = 1.0) -> Any:
        """Sends one command that takes a large value (STORING) or returns one (FETCHING). Its
        connection is its own, so no small command waits behind it."""
        connections = self._connections.bulk[direction]
        return await self._bulk_turns[direction].call(
            lambda: self._on_node(key, lambda connection: connection.ask_alone(*words, patience=patience), connections)
        )

    async def run_alone(
        self, direction: int, script: str, keys: Sequence[bytes], *args: bytes | str | int, patience: float = 1.0
    ) -> Any:
        """Runs a script that takes or returns a large value. Such scripts are rare, so docket
        always sends their source."""
        words = ("EVAL", load(script).source, len(keys), *keys, *args)
        return await self.ask_alone(direction, keys[0], *words, patience=patience)

    async def _on_node(
        self, key: bytes, call: Callable[[Connection], Awaitable[Any]], connections: ConnectionsBySlot | None = None
    ) -> Any:
        if not self._is_usable:
            await self._greet()
        known = self._connections
        nodes = known.nodes
        slot = nodes.slot(key) if nodes is not None else 0
        connections = known.ordinary if connections is None else connections
        # Nearly always there is a connection: awaiting a coroutine for it would cost more than the
        # rest of this function.
        connection = connections.get(slot) if nodes is None or slot in known.addresses else None
        try:
            try:
                return await call(await known.to_slot(slot, connections) if connection is None else connection)
            except MovedError as error:
                if nodes is None:
                    raise
                # The old node refused the command, so it is sent again.
                return await known.call_after_move(slot, connections, call, error)
        except SERVER_ERRORS as error:
            if nodes is not None and is_from_the_wrong_node(error):
                known.addresses.pop(slot, None)
            raise self.explain(error) from error

    async def revive(self) -> None:
        """After a lost connection: reopens the idle connections too, since they may be dead as
        well, and restarts an embedded engine that died, with its data."""
        self._connections.disconnect()
        if self._engine is not None:
            found = await in_thread(self._engine.ensure)
            self._clients.move(found.socket_path, found.database)

    async def blocking_connection(self, key: str) -> BlockingConnection:
        """A connection for blocking reads of one key, to the node that has it."""
        if not self._is_usable:
            await self._greet()
        name, known = text_bytes(key), self._connections
        slot = known.slot(name)
        return BlockingConnection(
            await known.blocking(slot), lambda *words: self.ask(name, *words), lambda error: known.moved(slot, error)
        )

    async def subscription_pipeline(
        self, on_message: Callable[[list[Any]], None], key: bytes | None = None
    ) -> Pipeline:
        """A connection for subscriptions. Each node of a cluster delivers all channels, but only
        the node that has a docket's keys counts its listeners for scripts: with `key`, the
        connection is at that node, and is closed when the key moves to another one."""
        if not self._is_usable:
            await self._greet()
        known = self._connections
        return await known.subscription(None if key is None else known.slot(key), on_message)

    def threaded_client(self, patience: Callable[[], float], key: str = "") -> ThreadedClient:
        """A blocking client for use in a thread, of the node that has the key. Each command, with
        finding the node and connecting, ends within the patience, whatever time-outs the URL
        sets."""
        if self._closed:
            raise self._not_open()
        known = self._connections
        return self._clients.threaded_client(known.nodes, key, patience, lambda: self.outages.count + known.moves)

    # Calls of threads, and typed errors

    def run_blocking(self, client: Any, script: str, keys: Sequence[bytes], *args: bytes | str) -> Any:
        """Runs a script on a client of `threaded_client`, for code outside the event loop."""
        if self._closed:
            raise self._not_open()
        try:
            return run_script(client, load(script), keys, args)
        except SERVER_ERRORS as error:
            raise self.explain(error) from error

    def unblock(self, client: Any, id: int) -> None:
        """Ends the blocking read of another connection, as if its time were over, if the server
        permits that."""
        try:
            client.execute_command("CLIENT", "UNBLOCK", id)
        except ResponseError:
            # The server does not permit it. The read ends by itself.
            return
        except SERVER_ERRORS as error:
            raise self.explain(error) from error

    def explain(self, error: BaseException) -> BaseException:
        """The typed error for a failed call. After the docket is closed that is NotOpen; every
        other error may be transient."""
        if self._closed:
            return self._not_open()
        if self._is_usable and self.credential_provider is not None and isinstance(error, AuthenticationError):
            # Credentials that are rotated may be revoked between the provider's answer and the
            # login. The next connection calls the provider again.
            return ServerUnavailable(f"{self.shown_url}: {error}")
        return refusal(error, self.shown_url, self._user, self.keys) or translate(error, self.shown_url) or error

    def _not_open(self) -> NotOpen:
        return NotOpen(f"{self.shown_url}: the docket was closed")

    # Opening and greeting

    async def _open_clients(self) -> None:
        """Starts the embedded engine if the URL asks for one. Its address may differ each time."""
        address = parse(self.url)
        credentials = self.credential_provider
        if credentials is not None:
            credentials = bounded(credentials, ANSWER_SECONDS * _CREDENTIALS_SHARE)
        self._clients = Clients(address, credentials, ANSWER_SECONDS, self.name)
        if address.kind is ServerKind.MEMORY:
            engine = await in_thread(memory_engine, address.name)
        elif address.kind is ServerKind.FOLDER:
            assert address.folder is not None
            self._engine = folder_engine(address.folder)
            engine = await in_thread(self._engine.start)
            self._stack.push_async_callback(in_thread, self._engine.stop)
        else:
            return
        self._clients.move(engine.socket_path, engine.database)

    @property
    def is_reached(self) -> bool:
        """Whether the server has answered since it was entered."""
        return self._is_usable

    async def _reach(self) -> None:
        """Greets the server. Repeats that within `entry_seconds`, if they are given. Otherwise the
        first call that reaches the server greets it."""
        deadline = time.monotonic() + (self.entry_seconds or 0)
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
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
            await asyncio.sleep(min(backoff.next_pause(), left))

    async def _greet_within(self, seconds: float) -> None:
        """Greets the server; without seconds, within the usual time for an answer."""
        try:
            async with asyncio.timeout(seconds if seconds > 0 else None):
                await self._greet()
        except TimeoutError:
            raise ServerSilent(f"{self.shown_url}: no answer within {seconds:.0f} s") from None

    async def _greet(self) -> None:
        """Greets the server before the first command. All callers share one attempt, and its
        failure."""
        if self._closed:
            raise self._not_open()
        try:
            await self._greeting.join()
        except TypeError as error:
            raise ServerUnsuitable(f"{self.shown_url}: bad option in the URL: {error}") from error
        except SERVER_ERRORS as error:
            raise self.explain(error) from error

    async def _examine(self) -> None:
        """Checks that docket can use this server."""
        info = await self._connections.server_info()
        self.engine_name, self.engine_version = server_version(info, self.shown_url)
        self._is_usable = not self._closed
        self.outages.passed(self)


def memory_engine(name: str) -> EngineAddress:
    return _embedded(f"memory://{name}").memory_engine(name)


def folder_engine(folder: Path) -> FolderEngine:
    return _embedded(f"embedded://{folder}").FolderEngine(folder)


def _embedded(url: str) -> Any:
    try:
        return importlib.import_module("docket.storage.embedded")
    except ModuleNotFoundError as error:
        raise ServerUnsuitable(
            f"{url}: the embedded engine cannot run on this system, which has no {error.name}; name a server with redis://…"
        ) from error


def server_version(text: bytes, where: str) -> tuple[str, str]:
    """The server's name and version, from the answer to `INFO server`. Raises ServerUnsuitable if
    docket cannot use it."""
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines())
    info = {name: value for name, colon, value in lines if colon}
    name = "valkey" if "valkey_version" in info else "redis"
    version = str(info.get("valkey_version") or info.get("redis_version"))
    if tuple(int(n) for n in str(info.get("redis_version", "7.2")).split(".")[:2]) < OLDEST_SERVER:
        raise ServerUnsuitable(f"{where}: server {version} is too old; docket needs Redis 6.2 or Valkey 7.2")
    return name, version


def consumers_without_lease(
    server: Server, client: Any, streams: Sequence[str], group: str, leases: str
) -> list[bytes]:
    """The consumers of the streams that have no lease. `client` is a client of
    `threaded_client()`."""
    try:
        names: set[bytes] = set()
        for stream in streams:
            # Without the stream or its group there are no consumers.
            with contextlib.suppress(ResponseError):
                # Each row is a list: b"name", the name, and more.
                names.update(row[1] for row in client.execute_command("XINFO", "CONSUMERS", stream, group))
        listed, ends = sorted(names), list[Any]()
        for start in range(0, len(listed), CONSUMERS_PAGE):
            ends += client.execute_command("ZMSCORE", leases, *listed[start : start + CONSUMERS_PAGE])
    except SERVER_ERRORS as error:
        raise server.explain(error) from error
    return [name for name, end in zip(listed, ends, strict=True) if end is None]


async def warn_of_data_loss(server: Server, key: bytes) -> None:
    """Warns, once per worker, if the server may delete tasks or does not keep them."""
    try:
        await _warn_of_eviction(server, key)
        if server.address.kind is not ServerKind.MEMORY:
            await _warn_of_restarts(server, key)
    except DocketError:
        # Managed servers often forbid CONFIG, so the settings are unknown.
        return


async def warn_of_missing_replica(server: Server, key: bytes) -> None:
    """Warns, once per docket, if every `add` will
    have to wait for a replica that does not exist."""
    if not server.is_reached or server.address.kind is ServerKind.MEMORY:
        return
    try:
        info = await server.ask(key, "INFO", "replication")
    except DocketError:
        return
    if b"connected_slaves:0" in info:
        logger.warning(
            '%s has no replica: with durability="replica" every add raises NotDurable until a replica is connected',
            server.shown_url,
        )


async def _warn_of_eviction(server: Server, key: bytes) -> None:
    policy = await _setting(server, key, "maxmemory-policy")
    if policy and policy != "noeviction":
        # The volatile policies delete only keys that expire.
        risk = _VOLATILE_RISK if policy.startswith("volatile") else "tasks that wait"
        logger.warning(
            "%s has maxmemory-policy %s: when memory runs short it will delete %s. Set maxmemory-policy to noeviction",
            server.shown_url, policy, risk,
        )  # fmt: skip


async def _warn_of_restarts(server: Server, key: bytes) -> None:
    if await _setting(server, key, "appendonly") == "no" and await _setting(server, key, "save") == "":
        logger.warning(
            '%s has appendonly no and save "": it keeps nothing on disk, so a restart loses all tasks. '
            "Set appendonly to yes",
            server.shown_url,
        )


async def _setting(server: Server, key: bytes, name: str) -> str | None:
    """The value of a setting of the server; None if the server does not have it."""
    found = await server.ask(key, "CONFIG", "GET", name)
    return found[1].decode() if len(found) > 1 else None
